server_settings.o: src/model/server_settings.cc \
  /work/ci3/src/base/limits.h /work/ci3/src/model/config_values.h \
  /work/ci3/src/base/clock.h /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/src/model/config_settings.h \
  /work/ci3/src/model/setting_list.h
