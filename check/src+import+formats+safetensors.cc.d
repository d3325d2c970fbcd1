safetensors.o: src/import/formats/safetensors.cc \
  /work/ci3/src/import/formats/safetensors.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/limits.h /work/ci3/src/base/macros.h \
  /work/ci3/src/import/formats/npy.h
