mutant_test.o: tests/faults/mutant_test.cc /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h /work/ci3/src/import/import.h \
  /work/ci3/include/hps/transfer.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/src/import/import_plan.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/src/tier/durable_tier.h /work/ci3/src/base/clock.h \
  /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/src/tier/fetch.h /work/ci3/src/tier/lossy_tier.h \
  /work/ci3/src/tier/fence.h /work/ci3/src/base/hash.h \
  /work/ci3/tests/faults/allocation_watch.h \
  /work/ci3/tests/faults/mutator.h \
  /work/ci3/tests/faults/reference_reader.h \
  /work/ci3/tests/faults/temporary_directory.h \
  /work/ci3/tests/faults/trials.h
