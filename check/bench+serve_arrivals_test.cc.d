serve_arrivals_test.o: bench/serve_arrivals_test.cc \
  /work/ci3/bench/serve_arrivals.h
