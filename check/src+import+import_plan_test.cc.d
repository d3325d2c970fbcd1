import_plan_test.o: src/import/import_plan_test.cc \
  /work/ci3/src/import/import_plan.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/src/import/formats/test_files.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
