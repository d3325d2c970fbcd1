slab_table.o: src/l1_host/slab_table.cc \
  /work/ci3/src/l1_host/slab_table.h /work/ci3/include/hps/types.h \
  /work/ci3/src/base/hash.h /work/ci3/src/base/macros.h
