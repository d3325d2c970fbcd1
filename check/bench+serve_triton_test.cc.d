serve_triton_test.o: bench/serve_triton_test.cc \
  /work/ci3/bench/serve_triton.h /work/ci3/bench/scenario.h \
  /work/ci3/bench/report.h
