gather.o: bench/gather.cc /work/ci3/bench/gather.h
