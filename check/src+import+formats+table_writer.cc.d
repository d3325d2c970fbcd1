table_writer.o: src/import/formats/table_writer.cc \
  /work/ci3/src/import/formats/table_writer.h \
  /work/ci3/include/hps/span.h /work/ci3/include/hps/types.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/src/import/formats/pending_file.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h /work/ci3/src/import/formats/elements.h \
  /work/ci3/src/import/formats/hugectr.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/src/import/formats/npy.h
