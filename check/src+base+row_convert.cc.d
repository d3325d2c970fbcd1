row_convert.o: src/base/row_convert.cc /work/ci3/src/base/row_convert.h \
  /work/ci3/include/hps/types.h /work/ci3/src/base/bytes.h
