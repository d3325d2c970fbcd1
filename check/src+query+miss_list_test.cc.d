miss_list_test.o: src/query/miss_list_test.cc \
  /work/ci3/src/query/miss_list.h /work/ci3/include/hps/types.h
