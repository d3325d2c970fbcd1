measure.o: bench/measure.cc /work/ci3/bench/measure.h
