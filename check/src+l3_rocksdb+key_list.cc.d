key_list.o: src/l3_rocksdb/key_list.cc \
  /work/ci3/src/l3_rocksdb/key_list.h /work/ci3/include/hps/types.h \
  /work/ci3/src/base/macros.h /work/ci3/src/l3_rocksdb/key_codec.h \
  /work/ci3/src/base/bytes.h /work/ci3/src/l3_rocksdb/status.h
