process_statistics_test.o: src/server/pages/process_statistics_test.cc \
  /work/ci3/src/server/pages/process_statistics.h
