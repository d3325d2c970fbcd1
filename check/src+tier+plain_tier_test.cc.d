plain_tier_test.o: src/tier/plain_tier_test.cc \
  /work/ci3/src/tier/plain_tier.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/tier/durable_tier.h \
  /work/ci3/src/base/clock.h /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/transfer.h /work/ci3/src/tier/fetch.h \
  /work/ci3/src/tier/lossy_tier.h /work/ci3/src/tier/fence.h \
  /work/ci3/src/base/hash.h /work/ci3/src/tier/lossy_contract.h \
  /work/ci3/src/tier/test_lossy_rows.h /work/ci3/src/tier/stamped_row.h
