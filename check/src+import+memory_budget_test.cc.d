memory_budget_test.o: src/import/memory_budget_test.cc \
  /work/ci3/src/import/memory_budget.h /work/ci3/src/base/macros.h
