no_memory.o: src/base/no_memory.cc /work/ci3/src/base/no_memory.h
