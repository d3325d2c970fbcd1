array_reader.o: src/import/formats/array_reader.cc \
  /work/ci3/src/import/formats/array_reader.h \
  /work/ci3/src/import/formats/file.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
