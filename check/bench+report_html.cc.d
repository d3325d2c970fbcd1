report_html.o: bench/report_html.cc /work/ci3/bench/report_html.h \
  /work/ci3/bench/report_reader.h /work/ci3/bench/report.h \
  /work/ci3/bench/scenario.h /work/ci3/bench/markup.h \
  /work/ci3/bench/plot.h /work/ci3/bench/report_plots.h
