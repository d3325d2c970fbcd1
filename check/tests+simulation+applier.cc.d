applier.o: tests/simulation/applier.cc \
  /work/ci3/tests/simulation/applier.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/tests/simulation/table.h \
  /work/ci3/src/query/served_table.h /work/ci3/src/base/limits.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/src/tier/device_cache.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/src/tier/fence.h \
  /work/ci3/src/base/hash.h /work/ci3/src/tier/fetch.h \
  /work/ci3/src/tier/lossy_tier.h /work/ci3/src/tier/durable_tier.h \
  /work/ci3/include/hps/transfer.h /work/ci3/tests/simulation/defects.h \
  /work/ci3/tests/simulation/history.h /work/ci3/src/tier/stamped_row.h \
  /work/ci3/src/tier/tier_faults.h
