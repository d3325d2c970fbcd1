prepared_call.o: src/server/core/prepared_call.cc \
  /work/ci3/src/server/core/prepared_call.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/admission.h \
  /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/model_version.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/src/server/core/server_model.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/server/core/batch_queue.h \
  /work/ci3/src/server/core/model_counters.h \
  /work/ci3/src/server/core/server_counters.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/core/model_repository.h
