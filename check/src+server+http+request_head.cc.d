request_head.o: src/server/http/request_head.cc \
  /work/ci3/src/server/http/request_head.h \
  /work/ci3/src/server/http/http_error.h \
  /work/ci3/src/server/core/server_counters.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/server_statistics.h
