safetensors_table_test.o: src/import/formats/safetensors_table_test.cc \
  /work/ci3/src/import/formats/safetensors_table.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/include/hps/types.h \
  /work/ci3/src/import/formats/test_files.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
