allocation_watch.o: tests/faults/allocation_watch.cc \
  /work/ci3/tests/faults/allocation_watch.h
