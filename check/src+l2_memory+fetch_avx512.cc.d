fetch_avx512.o: src/l2_memory/fetch_avx512.cc \
  /work/ci3/src/l2_memory/fetch.h /work/ci3/src/l2_memory/partition.h \
  /work/ci3/src/base/epoch.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/mutex.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/include/hps/types.h /work/ci3/src/l2_memory/index_line.h \
  /work/ci3/src/l2_memory/slot_pool.h /work/ci3/src/tier/fetch.h \
  /work/ci3/include/hps/span.h
