plot.o: bench/plot.cc /work/ci3/bench/plot.h /work/ci3/bench/markup.h
