slab_table_test.o: src/l1_host/slab_table_test.cc \
  /work/ci3/src/l1_host/slab_table.h /work/ci3/include/hps/types.h
