fuzz_replay_test.o: src/server/grpc_codec/fuzz_replay_test.cc \
  /work/ci3/src/server/grpc_codec/fuzz_target.h \
  /work/ci3/src/server/grpc_codec/test_infer_messages.h \
  /work/ci3/src/base/bytes.h \
  /work/ci3/src/server/grpc_codec/wire_format.h
