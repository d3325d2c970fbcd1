log_test.o: src/base/log_test.cc /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h /work/ci3/src/base/log_limiter.h \
  /work/ci3/src/base/clock.h
