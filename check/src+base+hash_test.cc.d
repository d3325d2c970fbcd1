hash_test.o: src/base/hash_test.cc /work/ci3/src/base/hash.h \
  /work/ci3/include/hps/types.h
