world.o: tests/simulation/world.cc /work/ci3/tests/simulation/world.h \
  /work/ci3/src/base/manual_executor.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/query/model_state.h \
  /work/ci3/src/base/epoch.h /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/src/query/lookup_counters.h /work/ci3/src/base/limits.h \
  /work/ci3/src/query/error_counter.h \
  /work/ci3/src/query/model_snapshot.h \
  /work/ci3/src/query/served_table.h /work/ci3/src/tier/device_cache.h \
  /work/ci3/src/tier/fence.h /work/ci3/src/base/hash.h \
  /work/ci3/src/tier/fetch.h /work/ci3/src/tier/lossy_tier.h \
  /work/ci3/src/tier/durable_tier.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/query/session_factory.h \
  /work/ci3/src/query/staged_fetch.h /work/ci3/src/query/cache_lookup.h \
  /work/ci3/src/query/table_work.h /work/ci3/src/query/fetch_job.h \
  /work/ci3/src/query/miss_list.h /work/ci3/src/query/query_work.h \
  /work/ci3/src/query/row_writer.h /work/ci3/src/base/row_convert.h \
  /work/ci3/src/query/crew.h /work/ci3/src/query/fetch_service.h \
  /work/ci3/tests/simulation/applier.h \
  /work/ci3/tests/simulation/table.h \
  /work/ci3/tests/simulation/defects.h \
  /work/ci3/tests/simulation/history.h /work/ci3/src/tier/stamped_row.h \
  /work/ci3/src/tier/tier_faults.h /work/ci3/src/tier/plain_tier.h \
  /work/ci3/src/l1_host/host_cache.h \
  /work/ci3/src/l2_memory/memory_tier.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/src/l2_memory/page_allocator.h \
  /work/ci3/src/tier/fault_cache.h /work/ci3/src/tier/fault_tier.h
