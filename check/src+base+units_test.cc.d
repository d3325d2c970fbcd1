units_test.o: src/base/units_test.cc /work/ci3/include/hps/units.h
