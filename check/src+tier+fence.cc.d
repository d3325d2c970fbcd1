fence.o: src/tier/fence.cc /work/ci3/src/tier/fence.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/hash.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
