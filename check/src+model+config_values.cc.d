config_values.o: src/model/config_values.cc \
  /work/ci3/src/model/config_values.h /work/ci3/src/base/clock.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h \
  /work/ci3/src/model/config_settings.h /work/ci3/src/base/macros.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/include/hps/units.h
