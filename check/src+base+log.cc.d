log.o: src/base/log.cc /work/ci3/src/base/log.h \
  /work/ci3/include/hps/log.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/log_limiter.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/text.h
