unique_counter.o: src/query/unique_counter.cc \
  /work/ci3/src/query/unique_counter.h /work/ci3/include/hps/types.h \
  /work/ci3/src/base/hash.h /work/ci3/src/base/macros.h
