serve_http_open_test.o: bench/serve_http_open_test.cc \
  /work/ci3/bench/serve_open_client.h /work/ci3/bench/serve_load.h \
  /work/ci3/bench/serve_client.h /work/ci3/include/hps/types.h \
  /work/ci3/bench/serve_world.h
