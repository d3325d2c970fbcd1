error_counter_test.o: src/query/error_counter_test.cc \
  /work/ci3/src/query/error_counter.h /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/types.h /work/ci3/include/hps/table_spec.h
