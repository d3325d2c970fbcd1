report_reader_test.o: bench/report_reader_test.cc \
  /work/ci3/bench/report_reader.h /work/ci3/bench/report.h \
  /work/ci3/bench/scenario.h
