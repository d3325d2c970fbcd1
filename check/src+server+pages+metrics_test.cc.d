metrics_test.o: src/server/pages/metrics_test.cc \
  /work/ci3/src/server/pages/metrics.h \
  /work/ci3/src/server/pages/snapshot.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/src/server/core/model_repository.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/pages/process_statistics.h \
  /work/ci3/src/server/pages/metric_list.h \
  /work/ci3/src/server/pages/test_pages_world.h \
  /work/ci3/include/hps/store.h /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/include/hps/transfer.h \
  /work/ci3/src/server/core/protocol_server.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/inference.h \
  /work/ci3/src/server/core/admission.h \
  /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/page_source.h \
  /work/ci3/src/server/core/server_counters.h
