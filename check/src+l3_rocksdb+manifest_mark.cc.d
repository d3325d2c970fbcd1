manifest_mark.o: src/l3_rocksdb/manifest_mark.cc \
  /work/ci3/src/l3_rocksdb/manifest_mark.h /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h /work/ci3/src/base/macros.h \
  /work/ci3/src/l3_rocksdb/log_check.h /work/ci3/src/l3_rocksdb/status.h \
  /work/ci3/src/l3_rocksdb/store_files.h
