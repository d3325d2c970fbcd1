serve_triton.o: bench/serve_triton.cc /work/ci3/bench/serve_triton.h \
  /work/ci3/bench/scenario.h /work/ci3/src/base/macros.h \
  /work/ci3/bench/report_reader.h /work/ci3/bench/report.h \
  /work/ci3/bench/serve_world.h /work/ci3/include/hps/types.h
