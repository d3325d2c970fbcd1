import_commit.o: src/l3_rocksdb/import_commit.cc \
  /work/ci3/src/l3_rocksdb/import_commit.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/src/l3_rocksdb/database.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/src/l3_rocksdb/background_errors.h \
  /work/ci3/src/base/clock.h /work/ci3/src/l3_rocksdb/catalog.h \
  /work/ci3/src/l3_rocksdb/options.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/include/hps/store.h /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/include/hps/transfer.h /work/ci3/src/tier/durable_tier.h \
  /work/ci3/src/tier/fetch.h /work/ci3/src/tier/lossy_tier.h \
  /work/ci3/src/tier/fence.h /work/ci3/src/base/hash.h \
  /work/ci3/src/l3_rocksdb/fetch_scratch.h /work/ci3/src/base/limits.h \
  /work/ci3/src/l3_rocksdb/key_codec.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/l3_rocksdb/owner_lock.h \
  /work/ci3/src/l3_rocksdb/reader_file_system.h \
  /work/ci3/src/l3_rocksdb/rocks_options.h \
  /work/ci3/src/l3_rocksdb/space_guard.h \
  /work/ci3/src/l3_rocksdb/space_reserve.h \
  /work/ci3/src/l3_rocksdb/store_file_system.h \
  /work/ci3/src/l3_rocksdb/switch_gate.h \
  /work/ci3/src/l3_rocksdb/staging.h /work/ci3/src/base/fault_point.h \
  /work/ci3/src/base/log.h /work/ci3/src/l3_rocksdb/file_checksum.h \
  /work/ci3/src/l3_rocksdb/status.h \
  /work/ci3/src/l3_rocksdb/store_files.h \
  /work/ci3/src/l3_rocksdb/table.h
