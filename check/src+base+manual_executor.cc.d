manual_executor.o: src/base/manual_executor.cc \
  /work/ci3/src/base/manual_executor.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
