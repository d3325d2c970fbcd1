reference_reader.o: tests/faults/reference_reader.cc \
  /work/ci3/tests/faults/reference_reader.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/bytes.h
