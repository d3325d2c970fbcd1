host_call_test.o: src/l1_host/host_call_test.cc \
  /work/ci3/src/l1_host/host_call.h \
  /work/ci3/src/l1_host/host_cache_table.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/l1_host/slab_table.h \
  /work/ci3/include/hps/types.h /work/ci3/src/tier/device_cache.h \
  /work/ci3/src/base/clock.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/src/tier/fence.h \
  /work/ci3/src/base/hash.h /work/ci3/src/tier/fetch.h \
  /work/ci3/src/tier/lossy_tier.h
