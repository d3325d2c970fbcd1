store_file_system.o: src/l3_rocksdb/store_file_system.cc \
  /work/ci3/src/l3_rocksdb/store_file_system.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/log.h /work/ci3/include/hps/log.h \
  /work/ci3/src/l3_rocksdb/staged_file.h
