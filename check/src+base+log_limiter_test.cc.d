log_limiter_test.o: src/base/log_limiter_test.cc \
  /work/ci3/src/base/log_limiter.h /work/ci3/src/base/clock.h
