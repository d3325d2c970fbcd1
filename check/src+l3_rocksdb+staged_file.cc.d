staged_file.o: src/l3_rocksdb/staged_file.cc \
  /work/ci3/src/l3_rocksdb/staged_file.h
