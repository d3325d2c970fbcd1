serve_redis.o: bench/serve_redis.cc /work/ci3/bench/serve_redis.h \
  /work/ci3/bench/serve_load.h /work/ci3/bench/serve_client.h \
  /work/ci3/include/hps/types.h /work/ci3/bench/serve_world.h \
  /work/ci3/src/base/macros.h /work/ci3/bench/serve_socket.h
