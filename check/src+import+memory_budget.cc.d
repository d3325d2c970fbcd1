memory_budget.o: src/import/memory_budget.cc \
  /work/ci3/src/import/memory_budget.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/bytes.h
