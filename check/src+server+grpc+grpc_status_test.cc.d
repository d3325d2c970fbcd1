grpc_status_test.o: src/server/grpc/grpc_status_test.cc \
  /work/ci3/src/server/grpc/grpc_status.h /work/ci3/src/base/clock.h
