stamped_row_test.o: src/tier/stamped_row_test.cc \
  /work/ci3/src/tier/stamped_row.h /work/ci3/include/hps/types.h
