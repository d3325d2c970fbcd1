serve_grpc_open.o: bench/serve_grpc_open.cc /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h /work/ci3/bench/serve_open_client.h \
  /work/ci3/bench/serve_load.h /work/ci3/bench/serve_client.h \
  /work/ci3/include/hps/types.h /work/ci3/bench/serve_world.h \
  /work/ci3/bench/serve_socket.h
