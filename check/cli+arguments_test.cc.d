arguments_test.o: cli/arguments_test.cc /work/ci3/cli/arguments.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h
