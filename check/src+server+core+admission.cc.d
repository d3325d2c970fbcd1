admission.o: src/server/core/admission.cc \
  /work/ci3/src/server/core/admission.h
