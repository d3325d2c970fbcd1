report_test.o: bench/report_test.cc /work/ci3/bench/report.h \
  /work/ci3/bench/scenario.h
