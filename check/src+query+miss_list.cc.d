miss_list.o: src/query/miss_list.cc /work/ci3/src/query/miss_list.h \
  /work/ci3/include/hps/types.h
