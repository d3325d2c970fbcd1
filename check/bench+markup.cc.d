markup.o: bench/markup.cc /work/ci3/bench/markup.h
