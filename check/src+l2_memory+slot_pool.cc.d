slot_pool.o: src/l2_memory/slot_pool.cc \
  /work/ci3/src/l2_memory/slot_pool.h /work/ci3/src/base/epoch.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/l2_memory/index_line.h /work/ci3/include/hps/types.h
