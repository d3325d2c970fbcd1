infer_answer_codec.o: src/server/http/infer_answer_codec.cc \
  /work/ci3/src/server/http/infer_answer_codec.h \
  /work/ci3/src/server/core/inference_call.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/http/infer_request_codec.h \
  /work/ci3/src/server/core/model_repository.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/src/server/http/json_reader.h \
  /work/ci3/src/server/net/buffer_pool.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/server/http/json_writer.h \
  /work/ci3/src/server/http/tensor_text.h
