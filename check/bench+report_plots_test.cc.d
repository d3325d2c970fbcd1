report_plots_test.o: bench/report_plots_test.cc \
  /work/ci3/bench/report_plots.h /work/ci3/bench/plot.h \
  /work/ci3/bench/scenario.h /work/ci3/bench/report.h
