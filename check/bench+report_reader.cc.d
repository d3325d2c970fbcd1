report_reader.o: bench/report_reader.cc /work/ci3/bench/report_reader.h \
  /work/ci3/bench/report.h /work/ci3/bench/scenario.h \
  /work/ci3/src/base/macros.h
