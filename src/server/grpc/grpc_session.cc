#include "server/grpc/grpc_session.h"

#include <array>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/macros.h"
#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_stream.h"

namespace hps::server {
namespace {

// A list of fields that goes on beyond this is an attack: the connection ends.
constexpr size_t kHostileFieldBytes = 16 * kCallFieldBytesMax;
// Streams that a client may reset: at once, and a second.
constexpr uint64_t kResetsBurst = 10'000;
constexpr uint64_t kResetsPerSecond = 1000;
// Answers to pings and settings that wait for a client that does not read.
constexpr size_t kAcknowledgementsMax = 256;

std::string_view TextOf(const uint8_t* bytes, size_t size) {
  return AsText(std::as_bytes(std::span(bytes, size)));
}

GrpcConnection& ConnectionOf(void* connection) { return *static_cast<GrpcConnection*>(connection); }

// Null: one that has been answered without an object, or that has gone.
GrpcStream* StreamOf(nghttp2_session* session, int32_t id) {
  return static_cast<GrpcStream*>(nghttp2_session_get_stream_user_data(session, id));
}

struct FreeOptions {
  void operator()(nghttp2_option* options) const { nghttp2_option_del(options); }
};

nghttp2_option* MakeOptions() {
  nghttp2_option* options = nullptr;
  if (nghttp2_option_new(&options) != 0) return nullptr;
  nghttp2_option_set_no_auto_window_update(options, 1);
  // A value of blanks is refused for what it says, not for how it is written.
  nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1);
  nghttp2_option_set_no_closed_streams(options, 1);
  nghttp2_option_set_max_outbound_ack(options, kAcknowledgementsMax);
  nghttp2_option_set_stream_reset_rate_limit(options, kResetsBurst, kResetsPerSecond);
  return options;
}

}  // namespace

nghttp2_session* GrpcSession::Create(GrpcConnection& connection) {
  static const std::unique_ptr<nghttp2_option, FreeOptions> options(MakeOptions());
  nghttp2_session* session = nullptr;
  if (options == nullptr ||
      nghttp2_session_server_new2(&session, Callbacks(), &connection, options.get()) != 0) {
    return nullptr;
  }
  constexpr std::array<nghttp2_settings_entry, 4> kSettings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kConnectionCallsMax},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kCallFieldBytesMax},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  }};
  const bool is_made = nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, kSettings.data(),
                                               kSettings.size()) == 0 &&
                       nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                                             kConnectionWindowBytes) == 0;
  if (is_made) return session;
  nghttp2_session_del(session);
  return nullptr;
}

const nghttp2_session_callbacks* GrpcSession::Callbacks() {
  static const nghttp2_session_callbacks* const callbacks = [] {
    nghttp2_session_callbacks* made = nullptr;
    HPS_CHECK(nghttp2_session_callbacks_new(&made) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(made, OnBeginFields);
    nghttp2_session_callbacks_set_on_header_callback(made, OnField);
    nghttp2_session_callbacks_set_on_frame_recv_callback(made, OnFrame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, OnData);
    nghttp2_session_callbacks_set_on_stream_close_callback(made, OnClosed);
    nghttp2_session_callbacks_set_on_frame_send_callback(made, OnSent);
    nghttp2_session_callbacks_set_send_data_callback(made, SendData);
    return made;
  }();
  return callbacks;
}

int GrpcSession::OnBeginFields(nghttp2_session*, const nghttp2_frame* frame, void* connection) {
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  return ConnectionOf(connection).BeginFields(frame->hd.stream_id);
}

int GrpcSession::OnField(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                         size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                         void* connection) {
  GrpcStream* const stream = StreamOf(session, frame->hd.stream_id);
  GrpcConnection& driven = ConnectionOf(connection);
  if (stream == nullptr) {
    driven.refused_field_bytes_ += name_bytes + value_bytes;
  } else {
    Tell(*stream, [&] { stream->OnField(TextOf(name, name_bytes), TextOf(value, value_bytes)); });
  }
  const size_t bytes = stream == nullptr ? driven.refused_field_bytes_ : stream->field_bytes();
  return bytes > kHostileFieldBytes ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

int GrpcSession::OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* connection) {
  GrpcConnection& driven = ConnectionOf(connection);
  const bool is_ack = (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
  const bool has_fields = frame->hd.type == NGHTTP2_HEADERS;
  const bool has_data = frame->hd.type == NGHTTP2_DATA && frame->hd.length > 0;
  if (frame->hd.type == NGHTTP2_SETTINGS) driven.has_settings_ = true;
  if (frame->hd.type == NGHTTP2_PING && is_ack) driven.pinged_at_ = {};
  if (frame->hd.type == NGHTTP2_PING && !is_ack) driven.CountPing();
  if (has_fields || has_data) driven.CountUseful(frame->hd.length);
  GrpcStream* const stream = has_fields || frame->hd.type == NGHTTP2_DATA
                                 ? StreamOf(session, frame->hd.stream_id)
                                 : nullptr;
  if (stream == nullptr) return 0;
  Tell(*stream, [&] {
    if (has_fields) stream->OnFields();
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->OnEnd();
  });
  return 0;
}

int GrpcSession::OnData(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data,
                        size_t bytes, void*) {
  // The connection's window bounds nothing: each stream's does.
  const int consumed = nghttp2_session_consume_connection(session, bytes);
  if (consumed != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
  GrpcStream* const stream = StreamOf(session, id);
  if (stream == nullptr) return 0;
  Tell(*stream, [&] { stream->OnData(std::as_bytes(std::span(data, bytes))); });
  return 0;
}

int GrpcSession::OnClosed(nghttp2_session* session, int32_t id, uint32_t, void* connection) {
  GrpcStream* const stream = StreamOf(session, id);
  if (stream != nullptr) ConnectionOf(connection).CloseStream(*stream, /*cut=*/false);
  return 0;
}

int GrpcSession::OnSent(nghttp2_session*, const nghttp2_frame* frame, void* connection) {
  ConnectionOf(connection).OnSent(*frame);
  return 0;
}

int GrpcSession::SendData(nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t bytes,
                          nghttp2_data_source* source, void* connection) {
  constexpr size_t kHeadBytes = 9;
  try {
    return ConnectionOf(connection)
        .SendData(*static_cast<GrpcStream*>(source->ptr),
                  std::as_bytes(std::span(head, kHeadBytes)), bytes);
  } catch (const std::bad_alloc&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
}

ssize_t GrpcSession::ReadData(nghttp2_session*, int32_t, uint8_t*, size_t bytes_max,
                              uint32_t* flags, nghttp2_data_source* source, void* connection) {
  return ConnectionOf(connection)
      .NextData(*static_cast<GrpcStream*>(source->ptr), bytes_max, flags);
}

}  // namespace hps::server
