no_memory_test.o: src/base/no_memory_test.cc \
  /work/ci3/src/base/no_memory.h
