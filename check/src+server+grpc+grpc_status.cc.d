grpc_status.o: src/server/grpc/grpc_status.cc \
  /work/ci3/src/server/grpc/grpc_status.h /work/ci3/src/base/clock.h
