server_identity.o: src/server/core/server_identity.cc \
  /work/ci3/src/server/core/server_identity.h
