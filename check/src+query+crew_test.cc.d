crew_test.o: src/query/crew_test.cc /work/ci3/src/query/crew.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/manual_executor.h
