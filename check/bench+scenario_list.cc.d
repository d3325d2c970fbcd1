scenario_list.o: bench/scenario_list.cc /work/ci3/bench/scenario_list.h \
  /work/ci3/bench/scenario.h
