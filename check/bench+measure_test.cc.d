measure_test.o: bench/measure_test.cc /work/ci3/bench/measure.h
