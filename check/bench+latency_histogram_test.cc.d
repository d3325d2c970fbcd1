latency_histogram_test.o: bench/latency_histogram_test.cc \
  /work/ci3/bench/latency_histogram.h
