names.o: src/base/names.cc /work/ci3/src/base/names.h
