report_plots.o: bench/report_plots.cc /work/ci3/bench/report_plots.h \
  /work/ci3/bench/plot.h /work/ci3/bench/scenario.h \
  /work/ci3/bench/markup.h /work/ci3/bench/report.h
