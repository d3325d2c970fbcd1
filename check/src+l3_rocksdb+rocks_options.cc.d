rocks_options.o: src/l3_rocksdb/rocks_options.cc \
  /work/ci3/src/l3_rocksdb/rocks_options.h \
  /work/ci3/src/l3_rocksdb/options.h /work/ci3/src/base/clock.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h /work/ci3/include/hps/store.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/include/hps/statistics.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/l3_rocksdb/info_log.h
