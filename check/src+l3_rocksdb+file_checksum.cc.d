file_checksum.o: src/l3_rocksdb/file_checksum.cc \
  /work/ci3/src/l3_rocksdb/file_checksum.h /work/ci3/src/base/macros.h \
  /work/ci3/src/l3_rocksdb/status.h
