model_version.o: src/server/core/model_version.cc \
  /work/ci3/src/server/core/model_version.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/model_life_cycle.h /work/ci3/src/base/macros.h
