child_process.o: tests/faults/child_process.cc \
  /work/ci3/tests/faults/child_process.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/bytes.h
