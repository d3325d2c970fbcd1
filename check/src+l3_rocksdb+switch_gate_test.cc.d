switch_gate_test.o: src/l3_rocksdb/switch_gate_test.cc \
  /work/ci3/src/l3_rocksdb/switch_gate.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
