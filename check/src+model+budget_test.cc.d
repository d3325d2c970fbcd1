budget_test.o: src/model/budget_test.cc /work/ci3/src/model/budget.h \
  /work/ci3/src/base/hash.h /work/ci3/include/hps/types.h
