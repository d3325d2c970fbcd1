tls.o: src/server/net/tls.cc /work/ci3/src/server/net/tls.h \
  /work/ci3/include/hps/server_config.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
