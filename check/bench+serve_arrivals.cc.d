serve_arrivals.o: bench/serve_arrivals.cc \
  /work/ci3/bench/serve_arrivals.h
