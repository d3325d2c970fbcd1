damage_log.o: src/l3_rocksdb/damage_log.cc \
  /work/ci3/src/l3_rocksdb/damage_log.h /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h
