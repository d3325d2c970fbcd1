store_files.o: src/l3_rocksdb/store_files.cc \
  /work/ci3/src/l3_rocksdb/store_files.h /work/ci3/src/base/macros.h \
  /work/ci3/src/l3_rocksdb/status.h
