clock.o: src/base/clock.cc /work/ci3/src/base/clock.h
