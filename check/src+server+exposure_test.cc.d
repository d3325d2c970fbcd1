exposure_test.o: src/server/exposure_test.cc \
  /work/ci3/src/server/exposure.h /work/ci3/include/hps/server_config.h
