table_loader.o: src/import/table_loader.cc \
  /work/ci3/src/import/table_loader.h /work/ci3/src/base/executor.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/include/hps/table_spec.h \
  /work/ci3/include/hps/types.h /work/ci3/src/import/formats/elements.h \
  /work/ci3/src/import/formats/table_reader.h \
  /work/ci3/src/import/memory_budget.h /work/ci3/src/import/row_merge.h \
  /work/ci3/include/hps/span.h /work/ci3/src/import/sorted_run.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/tier/durable_tier.h \
  /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/tier/fetch.h /work/ci3/src/tier/lossy_tier.h \
  /work/ci3/src/tier/fence.h /work/ci3/src/base/hash.h \
  /work/ci3/src/base/bytes.h /work/ci3/src/base/limits.h \
  /work/ci3/src/import/parallel.h
