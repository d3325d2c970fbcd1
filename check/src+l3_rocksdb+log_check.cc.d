log_check.o: src/l3_rocksdb/log_check.cc \
  /work/ci3/src/l3_rocksdb/log_check.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h /work/ci3/src/l3_rocksdb/status.h
