event_loop.o: src/server/net/event_loop.cc \
  /work/ci3/src/server/net/event_loop.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/executor.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
