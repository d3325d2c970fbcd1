exposure.o: src/server/exposure.cc /work/ci3/src/server/exposure.h \
  /work/ci3/include/hps/server_config.h
