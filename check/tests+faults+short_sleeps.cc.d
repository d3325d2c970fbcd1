short_sleeps.o: tests/faults/short_sleeps.cc
