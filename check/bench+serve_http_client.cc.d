serve_http_client.o: bench/serve_http_client.cc \
  /work/ci3/src/base/macros.h /work/ci3/bench/serve_client.h \
  /work/ci3/include/hps/types.h /work/ci3/bench/serve_http_head.h \
  /work/ci3/bench/serve_socket.h /work/ci3/bench/serve_world.h
