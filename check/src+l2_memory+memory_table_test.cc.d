memory_table_test.o: src/l2_memory/memory_table_test.cc \
  /work/ci3/src/l2_memory/memory_table.h /work/ci3/src/base/epoch.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/l2_memory/fetch.h /work/ci3/src/l2_memory/partition.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h /work/ci3/include/hps/types.h \
  /work/ci3/src/l2_memory/index_line.h \
  /work/ci3/src/l2_memory/slot_pool.h /work/ci3/src/tier/fetch.h \
  /work/ci3/include/hps/span.h /work/ci3/src/l2_memory/page_allocator.h \
  /work/ci3/src/l2_memory/reader_pool.h \
  /work/ci3/src/l2_memory/table_layout.h \
  /work/ci3/src/l2_memory/memory_tier.h /work/ci3/src/tier/lossy_tier.h \
  /work/ci3/src/base/clock.h /work/ci3/include/hps/statistics.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/src/tier/fence.h \
  /work/ci3/src/base/hash.h /work/ci3/src/tier/test_lossy_rows.h \
  /work/ci3/src/tier/stamped_row.h
