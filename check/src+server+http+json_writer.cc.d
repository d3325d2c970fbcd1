json_writer.o: src/server/http/json_writer.cc \
  /work/ci3/src/server/http/json_writer.h
