budget.o: src/model/budget.cc /work/ci3/src/model/budget.h \
  /work/ci3/src/base/hash.h /work/ci3/include/hps/types.h
