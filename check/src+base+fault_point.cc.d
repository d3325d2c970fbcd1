fault_point.o: src/base/fault_point.cc /work/ci3/src/base/fault_point.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/log.h /work/ci3/include/hps/log.h \
  /work/ci3/src/base/mutex.h
