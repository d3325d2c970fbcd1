grpc_stream.o: src/server/grpc/grpc_stream.cc \
  /work/ci3/src/server/grpc/grpc_stream.h /work/ci3/src/base/clock.h \
  /work/ci3/src/base/executor.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/grpc/control_methods.h \
  /work/ci3/src/server/core/protocol_server.h \
  /work/ci3/include/hps/config.h /work/ci3/include/hps/log.h \
  /work/ci3/include/hps/server_config.h \
  /work/ci3/src/server/core/inference.h \
  /work/ci3/src/server/core/admission.h \
  /work/ci3/src/server/core/model_repository.h \
  /work/ci3/include/hps/table_spec.h /work/ci3/include/hps/types.h \
  /work/ci3/src/server/core/page_source.h \
  /work/ci3/src/server/core/server_counters.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/grpc/message_inflater.h \
  /work/ci3/src/server/net/buffer_pool.h \
  /work/ci3/src/server/grpc/message_reader.h \
  /work/ci3/src/server/grpc/output_queue.h \
  /work/ci3/src/server/net/transport.h /work/ci3/src/server/net/tls.h \
  /work/ci3/src/server/grpc_codec/infer_request_codec.h \
  /work/ci3/src/server/grpc_codec/infer_response_codec.h \
  /work/ci3/src/base/bytes.h /work/ci3/src/base/no_memory.h \
  /work/ci3/src/base/text.h /work/ci3/src/server/grpc/grpc_connection.h \
  /work/ci3/src/server/net/served_connection.h \
  /work/ci3/src/server/net/backlog.h \
  /work/ci3/src/server/grpc/grpc_server.h \
  /work/ci3/src/server/grpc/stream_places.h \
  /work/ci3/src/server/net/connection_server.h \
  /work/ci3/src/server/core/token_guard.h \
  /work/ci3/src/server/net/event_loop.h \
  /work/ci3/src/server/net/listener.h \
  /work/ci3/src/server/grpc/grpc_status.h
