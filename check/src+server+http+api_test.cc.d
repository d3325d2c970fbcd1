api_test.o: src/server/http/api_test.cc /work/ci3/src/server/http/api.h \
  /work/ci3/src/server/core/protocol_server.h /work/ci3/src/base/clock.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h \
  /work/ci3/src/server/core/inference.h \
  /work/ci3/src/server/core/admission.h \
  /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/model_repository.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/src/server/core/page_source.h \
  /work/ci3/src/server/core/server_counters.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/http/request_head.h \
  /work/ci3/src/server/http/http_error.h \
  /work/ci3/src/server/http/route.h \
  /work/ci3/src/server/http/test_http_world.h /work/ci3/src/base/bytes.h \
  /work/ci3/src/base/mutex.h /work/ci3/src/base/macros.h \
  /work/ci3/src/server/net/test_socket.h
