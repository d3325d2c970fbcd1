config.o: src/model/config.cc /work/ci3/include/hps/config.h \
  /work/ci3/include/hps/log.h /work/ci3/include/hps/server_config.h \
  /work/ci3/src/base/limits.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/names.h /work/ci3/include/hps/units.h \
  /work/ci3/src/import/formats/file.h \
  /work/ci3/src/model/config_settings.h \
  /work/ci3/src/model/setting_list.h
