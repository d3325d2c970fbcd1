latency_histogram.o: bench/latency_histogram.cc \
  /work/ci3/bench/latency_histogram.h
