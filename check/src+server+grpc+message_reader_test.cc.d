message_reader_test.o: src/server/grpc/message_reader_test.cc \
  /work/ci3/src/server/grpc/message_reader.h \
  /work/ci3/src/server/net/buffer_pool.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/bytes.h
