generate.o: src/import/generate.cc /work/ci3/include/hps/generate.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/limits.h /work/ci3/src/base/macros.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/import/formats/npy.h \
  /work/ci3/src/import/formats/table_writer.h \
  /work/ci3/include/hps/span.h \
  /work/ci3/src/import/formats/pending_file.h \
  /work/ci3/src/import/progress_reporter.h /work/ci3/src/base/clock.h \
  /work/ci3/src/import/zipf.h
