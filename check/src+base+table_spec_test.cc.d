table_spec_test.o: src/base/table_spec_test.cc \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h
