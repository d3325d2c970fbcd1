plot_test.o: bench/plot_test.cc /work/ci3/bench/plot.h \
  /work/ci3/bench/test_well_formed.h
