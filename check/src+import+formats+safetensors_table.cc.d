safetensors_table.o: src/import/formats/safetensors_table.cc \
  /work/ci3/src/import/formats/safetensors_table.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/macros.h \
  /work/ci3/src/base/names.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/src/import/formats/array_reader.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/import/formats/npy.h \
  /work/ci3/src/import/formats/safetensors.h
