grpc_overload_test.o: src/server/grpc/grpc_overload_test.cc \
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
  /work/ci3/src/server/core/test_server_world.h \
  /work/ci3/src/base/executor.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/include/hps/store.h \
  /work/ci3/include/hps/lookup_session.h \
  /work/ci3/include/hps/lookup_cancel.h /work/ci3/include/hps/span.h \
  /work/ci3/include/hps/model_life_cycle.h \
  /work/ci3/include/hps/statistics.h /work/ci3/include/hps/transfer.h \
  /work/ci3/src/server/core/server_core.h \
  /work/ci3/src/server/core/inference_engine.h \
  /work/ci3/src/server/core/batch_queue.h \
  /work/ci3/src/server/core/prepared_call.h \
  /work/ci3/src/server/core/model_version.h \
  /work/ci3/src/server/core/batch_runner.h \
  /work/ci3/src/server/core/server_model.h \
  /work/ci3/src/server/core/model_counters.h \
  /work/ci3/src/server/core/store_repository.h \
  /work/ci3/src/server/grpc/test_gated_inference.h \
  /work/ci3/src/server/grpc/test_http2_client.h \
  /work/ci3/src/base/bytes.h \
  /work/ci3/src/server/grpc/test_http2_frames.h \
  /work/ci3/src/server/net/test_socket.h \
  /work/ci3/src/server/grpc_codec/test_infer_messages.h \
  /work/ci3/src/server/grpc_codec/wire_format.h \
  /work/ci3/src/server/net/test_overload_calls.h
