crew.o: src/query/crew.cc /work/ci3/src/query/crew.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/spin.h
