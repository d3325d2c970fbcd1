token_guard_test.o: src/server/core/token_guard_test.cc \
  /work/ci3/src/server/core/token_guard.h
