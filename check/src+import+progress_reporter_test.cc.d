progress_reporter_test.o: src/import/progress_reporter_test.cc \
  /work/ci3/src/import/progress_reporter.h /work/ci3/src/base/clock.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/manual_executor.h \
  /work/ci3/src/base/executor.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
