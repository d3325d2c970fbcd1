parallel.o: src/import/parallel.cc /work/ci3/src/import/parallel.h \
  /work/ci3/src/base/executor.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/out_of_memory.h
