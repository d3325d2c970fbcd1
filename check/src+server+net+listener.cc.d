listener.o: src/server/net/listener.cc \
  /work/ci3/src/server/net/listener.h /work/ci3/src/base/macros.h
