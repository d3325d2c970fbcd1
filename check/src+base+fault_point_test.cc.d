fault_point_test.o: src/base/fault_point_test.cc \
  /work/ci3/src/base/fault_point.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/macros.h
