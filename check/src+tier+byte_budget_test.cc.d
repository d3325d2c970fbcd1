byte_budget_test.o: src/tier/byte_budget_test.cc \
  /work/ci3/src/tier/byte_budget.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/mutex.h
