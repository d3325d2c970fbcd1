log_syncer.o: src/l3_rocksdb/log_syncer.cc \
  /work/ci3/src/l3_rocksdb/log_syncer.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/log.h /work/ci3/include/hps/log.h
