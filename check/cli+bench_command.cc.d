bench_command.o: cli/bench_command.cc /work/ci3/bench/heartbeat.h \
  /work/ci3/bench/report.h /work/ci3/bench/scenario.h \
  /work/ci3/bench/report_html.h /work/ci3/bench/report_reader.h \
  /work/ci3/bench/scenario_list.h /work/ci3/cli/commands.h \
  /work/ci3/cli/arguments.h /work/ci3/include/hps/transfer.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/cli/output.h /work/ci3/cli/json_writer.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h /work/ci3/cli/progress.h
