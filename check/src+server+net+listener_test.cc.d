listener_test.o: src/server/net/listener_test.cc \
  /work/ci3/src/server/net/listener.h
