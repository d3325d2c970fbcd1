status.o: src/l3_rocksdb/status.cc /work/ci3/src/l3_rocksdb/status.h
