top_command.o: cli/top_command.cc /work/ci3/cli/commands.h \
  /work/ci3/cli/arguments.h /work/ci3/include/hps/transfer.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/cli/output.h /work/ci3/cli/json_writer.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h /work/ci3/cli/http_client.h \
  /work/ci3/cli/top_figures.h
