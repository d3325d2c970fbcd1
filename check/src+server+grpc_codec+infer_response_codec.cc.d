infer_response_codec.o: src/server/grpc_codec/infer_response_codec.cc \
  /work/ci3/src/server/grpc_codec/infer_response_codec.h \
  /work/ci3/src/server/core/inference_call.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/tensor.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h \
  /work/ci3/src/server/grpc_codec/wire_format.h
