row_merge.o: src/import/row_merge.cc /work/ci3/src/import/row_merge.h \
  /work/ci3/include/hps/span.h /work/ci3/include/hps/types.h \
  /work/ci3/src/import/sorted_run.h /work/ci3/src/import/formats/file.h \
  /work/ci3/src/import/memory_budget.h /work/ci3/src/base/macros.h
