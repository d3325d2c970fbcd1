token_guard.o: src/server/core/token_guard.cc \
  /work/ci3/src/server/core/token_guard.h
