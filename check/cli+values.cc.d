values.o: cli/values.cc /work/ci3/cli/values.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h
