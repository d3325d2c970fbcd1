backlog_test.o: src/server/net/backlog_test.cc \
  /work/ci3/src/server/net/backlog.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h
