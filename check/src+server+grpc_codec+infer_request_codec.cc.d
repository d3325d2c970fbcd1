infer_request_codec.o: src/server/grpc_codec/infer_request_codec.cc \
  /work/ci3/src/server/grpc_codec/infer_request_codec.h \
  /work/ci3/src/server/core/inference_call.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/tensor.h /work/ci3/src/base/limits.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/text.h \
  /work/ci3/src/server/grpc_codec/wire_format.h \
  /work/ci3/src/base/bytes.h
