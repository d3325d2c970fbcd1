markup_test.o: bench/markup_test.cc /work/ci3/bench/markup.h \
  /work/ci3/bench/test_well_formed.h
