json_reader.o: src/server/http/json_reader.cc \
  /work/ci3/src/server/http/json_reader.h
