reader_file_system.o: src/l3_rocksdb/reader_file_system.cc \
  /work/ci3/src/l3_rocksdb/reader_file_system.h \
  /work/ci3/src/base/clock.h /work/ci3/src/base/macros.h \
  /work/ci3/src/l3_rocksdb/status.h
