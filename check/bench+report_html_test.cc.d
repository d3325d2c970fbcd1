report_html_test.o: bench/report_html_test.cc \
  /work/ci3/bench/report_html.h /work/ci3/bench/report_reader.h \
  /work/ci3/bench/report.h /work/ci3/bench/scenario.h \
  /work/ci3/bench/test_well_formed.h
