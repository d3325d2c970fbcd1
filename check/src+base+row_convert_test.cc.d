row_convert_test.o: src/base/row_convert_test.cc \
  /work/ci3/src/base/row_convert.h /work/ci3/include/hps/types.h
