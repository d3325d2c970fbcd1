sorted_run_test.o: src/import/sorted_run_test.cc \
  /work/ci3/src/import/sorted_run.h /work/ci3/include/hps/types.h \
  /work/ci3/src/import/formats/file.h \
  /work/ci3/src/import/memory_budget.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/bytes.h /work/ci3/src/import/formats/test_files.h
