executor.o: src/base/executor.cc /work/ci3/src/base/executor.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
