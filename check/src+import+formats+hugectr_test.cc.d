hugectr_test.o: src/import/formats/hugectr_test.cc \
  /work/ci3/src/import/formats/hugectr.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/include/hps/types.h \
  /work/ci3/src/import/formats/test_files.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
