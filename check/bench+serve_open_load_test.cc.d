serve_open_load_test.o: bench/serve_open_load_test.cc \
  /work/ci3/bench/serve_open_load.h /work/ci3/bench/latency_histogram.h \
  /work/ci3/bench/serve_open_client.h /work/ci3/bench/serve_load.h \
  /work/ci3/bench/serve_client.h /work/ci3/include/hps/types.h \
  /work/ci3/bench/serve_world.h /work/ci3/src/base/macros.h \
  /work/ci3/bench/serve_arrivals.h
