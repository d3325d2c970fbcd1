tier_faults.o: src/tier/tier_faults.cc /work/ci3/src/tier/tier_faults.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h
