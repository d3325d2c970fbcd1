bench_main.o: bench/bench_main.cc /work/ci3/bench/report.h \
  /work/ci3/bench/scenario.h /work/ci3/bench/report_html.h \
  /work/ci3/bench/report_reader.h /work/ci3/bench/scenario_list.h
