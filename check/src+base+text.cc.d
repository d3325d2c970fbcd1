text.o: src/base/text.cc /work/ci3/src/base/text.h
