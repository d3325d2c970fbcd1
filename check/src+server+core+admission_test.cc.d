admission_test.o: src/server/core/admission_test.cc \
  /work/ci3/src/server/core/admission.h
