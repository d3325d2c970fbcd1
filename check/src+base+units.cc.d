units.o: src/base/units.cc /work/ci3/include/hps/units.h \
  /work/ci3/src/base/bytes.h
