row_codec.o: src/l3_rocksdb/row_codec.cc \
  /work/ci3/src/l3_rocksdb/row_codec.h /work/ci3/src/base/bytes.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/hash.h
