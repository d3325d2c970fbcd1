output_queue.o: src/server/grpc/output_queue.cc \
  /work/ci3/src/server/grpc/output_queue.h \
  /work/ci3/src/server/net/transport.h /work/ci3/src/server/net/tls.h \
  /work/ci3/include/hps/server_config.h /work/ci3/src/base/bytes.h
