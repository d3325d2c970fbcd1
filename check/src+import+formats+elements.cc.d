elements.o: src/import/formats/elements.cc \
  /work/ci3/src/import/formats/elements.h /work/ci3/include/hps/types.h \
  /work/ci3/src/base/bytes.h /work/ci3/src/base/macros.h
