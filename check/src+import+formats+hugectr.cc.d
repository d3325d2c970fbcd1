hugectr.o: src/import/formats/hugectr.cc \
  /work/ci3/src/import/formats/hugectr.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/src/import/formats/array_reader.h \
  /work/ci3/src/import/formats/file.h
