transport.o: src/server/net/transport.cc \
  /work/ci3/src/server/net/transport.h /work/ci3/src/server/net/tls.h \
  /work/ci3/include/hps/server_config.h
