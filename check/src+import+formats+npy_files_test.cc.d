npy_files_test.o: src/import/formats/npy_files_test.cc \
  /work/ci3/include/hps/npy_files.h /work/ci3/include/hps/types.h \
  /work/ci3/src/base/limits.h /work/ci3/src/import/formats/file.h \
  /work/ci3/src/import/formats/npy.h \
  /work/ci3/src/import/formats/test_files.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
