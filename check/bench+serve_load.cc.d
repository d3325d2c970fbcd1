serve_load.o: bench/serve_load.cc /work/ci3/bench/serve_load.h \
  /work/ci3/bench/serve_client.h /work/ci3/include/hps/types.h \
  /work/ci3/bench/serve_world.h /work/ci3/src/base/macros.h \
  /work/ci3/bench/measure.h
