process_statistics.o: src/server/pages/process_statistics.cc \
  /work/ci3/src/server/pages/process_statistics.h
