log_limiter.o: src/base/log_limiter.cc /work/ci3/src/base/log_limiter.h \
  /work/ci3/src/base/clock.h
