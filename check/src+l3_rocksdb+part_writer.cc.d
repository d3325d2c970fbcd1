part_writer.o: src/l3_rocksdb/part_writer.cc \
  /work/ci3/src/l3_rocksdb/part_writer.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/src/l3_rocksdb/rocks_options.h \
  /work/ci3/src/l3_rocksdb/options.h /work/ci3/src/base/clock.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h /work/ci3/include/hps/store.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h \
  /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/include/hps/statistics.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/l3_rocksdb/staging.h \
  /work/ci3/src/l3_rocksdb/owner_lock.h /work/ci3/src/base/macros.h \
  /work/ci3/src/l3_rocksdb/key_codec.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/l3_rocksdb/key_list.h \
  /work/ci3/src/l3_rocksdb/row_codec.h /work/ci3/src/l3_rocksdb/status.h
