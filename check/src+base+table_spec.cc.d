table_spec.o: src/base/table_spec.cc /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/macros.h
