cancel_point.o: src/query/cancel_point.cc \
  /work/ci3/src/query/cancel_point.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/include/hps/lookup_cancel.h
