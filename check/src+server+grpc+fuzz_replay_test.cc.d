fuzz_replay_test.o: src/server/grpc/fuzz_replay_test.cc \
  /work/ci3/src/base/bytes.h /work/ci3/src/server/grpc/fuzz_target.h
