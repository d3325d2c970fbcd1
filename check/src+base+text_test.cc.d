text_test.o: src/base/text_test.cc /work/ci3/src/base/text.h
