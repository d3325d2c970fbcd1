infer_response_codec_test.o: \
  src/server/grpc_codec/infer_response_codec_test.cc \
  /work/ci3/src/server/grpc_codec/infer_response_codec.h \
  /work/ci3/src/server/core/inference_call.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/grpc_codec/wire_format.h \
  /work/ci3/src/base/bytes.h
