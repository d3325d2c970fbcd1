safetensors_test.o: src/import/formats/safetensors_test.cc \
  /work/ci3/src/import/formats/safetensors.h \
  /work/ci3/src/import/formats/file.h \
  /work/ci3/src/import/formats/test_files.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h
