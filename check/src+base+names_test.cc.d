names_test.o: src/base/names_test.cc /work/ci3/src/base/names.h
