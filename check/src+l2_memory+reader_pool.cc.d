reader_pool.o: src/l2_memory/reader_pool.cc \
  /work/ci3/src/l2_memory/reader_pool.h /work/ci3/src/base/epoch.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/mutex.h
