serve_grpc.o: bench/serve_grpc.cc /work/ci3/src/base/macros.h \
  /work/ci3/bench/serve_client.h /work/ci3/include/hps/types.h \
  /work/ci3/bench/serve_grpc_channel.h /work/ci3/bench/serve_world.h
