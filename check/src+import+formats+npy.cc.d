npy.o: src/import/formats/npy.cc /work/ci3/src/import/formats/npy.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/limits.h /work/ci3/src/base/macros.h
