background_errors.o: src/l3_rocksdb/background_errors.cc \
  /work/ci3/src/l3_rocksdb/background_errors.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h
