compression_test.o: src/server/http/compression_test.cc \
  /work/ci3/src/server/http/compression.h \
  /work/ci3/src/server/http/request_head.h \
  /work/ci3/src/server/http/http_error.h \
  /work/ci3/src/server/core/server_counters.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/net/buffer_pool.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/base/bytes.h
