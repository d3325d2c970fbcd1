snapshot.o: src/server/pages/snapshot.cc \
  /work/ci3/src/server/pages/snapshot.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/src/server/core/model_repository.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/pages/process_statistics.h
