json_reader_test.o: src/server/http/json_reader_test.cc \
  /work/ci3/src/server/http/json_reader.h
