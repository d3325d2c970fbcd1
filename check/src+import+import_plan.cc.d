import_plan.o: src/import/import_plan.cc \
  /work/ci3/src/import/import_plan.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/src/base/macros.h /work/ci3/src/import/formats/elements.h \
  /work/ci3/src/import/formats/hugectr.h \
  /work/ci3/src/import/formats/npy.h /work/ci3/src/import/formats/file.h \
  /work/ci3/src/import/formats/npy_table.h \
  /work/ci3/src/import/formats/array_reader.h \
  /work/ci3/src/import/formats/safetensors_table.h
