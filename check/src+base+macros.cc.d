macros.o: src/base/macros.cc /work/ci3/src/base/macros.h
