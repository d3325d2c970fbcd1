failing_new.o: tests/faults/failing_new.cc \
  /work/ci3/tests/faults/failing_new.h
