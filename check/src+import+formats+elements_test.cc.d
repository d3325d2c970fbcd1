elements_test.o: src/import/formats/elements_test.cc \
  /work/ci3/src/import/formats/elements.h /work/ci3/include/hps/types.h \
  /work/ci3/src/base/bytes.h
