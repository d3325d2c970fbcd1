space_reserve.o: src/l3_rocksdb/space_reserve.cc \
  /work/ci3/src/l3_rocksdb/space_reserve.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/l3_rocksdb/space_guard.h \
  /work/ci3/src/base/bytes.h /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h /work/ci3/src/l3_rocksdb/status.h \
  /work/ci3/src/l3_rocksdb/store_files.h
