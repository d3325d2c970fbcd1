space_guard.o: src/l3_rocksdb/space_guard.cc \
  /work/ci3/src/l3_rocksdb/space_guard.h
