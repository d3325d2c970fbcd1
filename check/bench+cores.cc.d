cores.o: bench/cores.cc /work/ci3/bench/cores.h
