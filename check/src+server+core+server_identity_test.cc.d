server_identity_test.o: src/server/core/server_identity_test.cc \
  /work/ci3/src/server/core/server_identity.h
