epoch_test.o: src/base/epoch_test.cc /work/ci3/src/base/epoch.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/mutex.h
