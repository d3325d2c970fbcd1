arguments.o: cli/arguments.cc /work/ci3/cli/arguments.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/bench/scenario_list.h \
  /work/ci3/bench/scenario.h /work/ci3/cli/http_client.h \
  /work/ci3/cli/values.h /work/ci3/include/hps/units.h
