info_log.o: src/l3_rocksdb/info_log.cc \
  /work/ci3/src/l3_rocksdb/info_log.h /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h
