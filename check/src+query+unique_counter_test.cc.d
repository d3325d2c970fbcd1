unique_counter_test.o: src/query/unique_counter_test.cc \
  /work/ci3/src/query/unique_counter.h /work/ci3/include/hps/types.h
