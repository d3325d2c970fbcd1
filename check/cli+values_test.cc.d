values_test.o: cli/values_test.cc /work/ci3/cli/values.h \
  /work/ci3/include/hps/types.h
