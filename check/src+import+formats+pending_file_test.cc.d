pending_file_test.o: src/import/formats/pending_file_test.cc \
  /work/ci3/src/import/formats/pending_file.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/import/formats/test_files.h /work/ci3/src/base/macros.h
