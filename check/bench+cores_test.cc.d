cores_test.o: bench/cores_test.cc /work/ci3/bench/cores.h \
  /work/ci3/bench/serve_world.h /work/ci3/include/hps/types.h
