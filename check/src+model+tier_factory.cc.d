tier_factory.o: src/model/tier_factory.cc \
  /work/ci3/src/model/tier_factory.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/include/hps/store.h /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/include/hps/statistics.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/tier/durable_tier.h /work/ci3/src/base/clock.h \
  /work/ci3/src/tier/fetch.h /work/ci3/src/tier/lossy_tier.h \
  /work/ci3/src/tier/fence.h /work/ci3/src/base/hash.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/l2_memory/memory_tier.h \
  /work/ci3/src/l2_memory/page_allocator.h \
  /work/ci3/src/l3_rocksdb/rocks_store.h \
  /work/ci3/src/l3_rocksdb/options.h /work/ci3/src/l3_rocksdb/verify.h
