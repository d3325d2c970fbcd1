fuzz_targets.o: src/server/http/fuzz_targets.cc \
  /work/ci3/src/server/http/fuzz_targets.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/macros.h \
  /work/ci3/src/server/http/infer_request_codec.h \
  /work/ci3/src/server/core/inference_call.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/model_repository.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/src/server/http/json_reader.h \
  /work/ci3/src/server/net/buffer_pool.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/server/http/request_head.h \
  /work/ci3/src/server/http/http_error.h \
  /work/ci3/src/server/core/server_counters.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/http/route.h
