progress.o: cli/progress.cc /work/ci3/cli/progress.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/cli/output.h \
  /work/ci3/cli/json_writer.h
