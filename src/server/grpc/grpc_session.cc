#include "server/grpc/grpc_session.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/macros.h"
#include "server/grpc/call_metadata.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/http2_field.h"

namespace hps::server {
namespace {

constexpr size_t kFrameHeadBytes = 9;
// A longer list of header fields is an attack: it ends the connection.
constexpr size_t kHostileFieldBytes = 16 * kCallFieldBytesMax;
// Streams that a client may reset: at once, and per second.
constexpr uint64_t kResetsBurst = 10'000;
constexpr uint64_t kResetsPerSecond = 1000;
// Pieces of CONTINUATION frames of one list of fields: more than kHostileFieldBytes need.
constexpr size_t kContinuationsMax = 256;
// Unsent acknowledgements of pings and settings, for a client that does not read.
constexpr size_t kAcknowledgementsMax = 256;
// Larger answers take turns with the others of their connection.
constexpr size_t kSharedAnswerBytes = size_t{64} << 10;
// GOAWAY of a shutdown notice names the largest stream id. The ping behind it has this text.
constexpr int32_t kStreamIdMax = 0x7fffffff;
constexpr std::array<uint8_t, 8> kShutdownPing = {'s', 'h', 'u', 't', 'd', 'o', 'w', 'n'};

std::span<const std::byte> BytesOf(const uint8_t* bytes, size_t size) {
  return std::as_bytes(std::span(bytes, size));
}

GrpcSession& SessionOf(void* self) { return *static_cast<GrpcSession*>(self); }

Http2Stream& SourceOf(const nghttp2_data_source* source) {
  return *static_cast<Http2Stream*>(source->ptr);
}

// A field whose texts live until it is sent.
nghttp2_nv Field(std::string_view name, std::string_view value) {
  return Http2Field(name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE);
}

nghttp2_nv CopiedField(std::string_view name, std::string_view value) {
  return Http2Field(name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME);
}

const nghttp2_nv kOk = Field(":status", "200");
const nghttp2_nv kContentType = Field("content-type", "application/grpc");
const nghttp2_nv kAccepted = Field("grpc-accept-encoding", "identity,deflate,gzip");

nghttp2_nv CodeField(const Http2Stream& stream) {
  return Field("grpc-status", StatusCodeText(stream.response.end_code()));
}
nghttp2_nv MessageField(const Http2Stream& stream) {
  return CopiedField("grpc-message", stream.response.end_message());
}

const nghttp2_option* MakeOptions() {
  nghttp2_option* options = nullptr;
  if (nghttp2_option_new(&options) != 0) return nullptr;
  nghttp2_option_set_no_auto_window_update(options, 1);
  // The call's own check refuses a value of blanks, with an error that says why.
  nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1);
  nghttp2_option_set_no_closed_streams(options, 1);
  nghttp2_option_set_max_continuations(options, kContinuationsMax);
  nghttp2_option_set_max_outbound_ack(options, kAcknowledgementsMax);
  nghttp2_option_set_stream_reset_rate_limit(options, kResetsBurst, kResetsPerSecond);
  return options;
}

// nghttp2 takes a field of more than 64 KiB for an error of compression and resets no stream. If a
// frame is that GOAWAY, returns it with the true reason, behind a reset of the fields' stream.
std::string WithFieldsTooLong(std::string frame, int32_t stream) {
  constexpr size_t kReasonEnd = 16;
  if (frame[3] != NGHTTP2_GOAWAY || frame[kReasonEnd] != NGHTTP2_COMPRESSION_ERROR) return frame;
  frame[kReasonEnd] = NGHTTP2_ENHANCE_YOUR_CALM;
  const std::array<uint32_t, 2> body = {__builtin_bswap32(static_cast<uint32_t>(stream)),
                                        __builtin_bswap32(NGHTTP2_ENHANCE_YOUR_CALM)};
  const std::string head("\0\0\4\3\0", 5);  // of RST_STREAM
  return head + std::string(AsText(std::as_bytes(std::span(body)))) + frame;
}

}  // namespace

const nghttp2_session_callbacks* GrpcSession::Callbacks() {
  static const nghttp2_session_callbacks* const callbacks = [] {
    nghttp2_session_callbacks* made = nullptr;
    HPS_CHECK(nghttp2_session_callbacks_new(&made) == 0);
    nghttp2_session_callbacks_set_on_begin_frame_callback(
        made, [](nghttp2_session*, const nghttp2_frame_hd* head, void* self) {
          SessionOf(self).OnBeginFrame(*head);
          return 0;
        });
    nghttp2_session_callbacks_set_on_begin_headers_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          return SessionOf(self).OnBeginFields(*frame);
        });
    nghttp2_session_callbacks_set_on_header_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                 size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t, void* self) {
          return SessionOf(self).OnField(frame->hd.stream_id, AsText(BytesOf(name, name_bytes)),
                                         AsText(BytesOf(value, value_bytes)));
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          SessionOf(self).OnFrame(*frame);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t bytes,
                 void* self) { return SessionOf(self).OnData(id, BytesOf(data, bytes)); });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        made, [](nghttp2_session*, int32_t id, uint32_t, void* self) {
          SessionOf(self).OnClosed(id);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_send_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          SessionOf(self).OnSent(*frame);
          return 0;
        });
    nghttp2_session_callbacks_set_send_data_callback(
        made, [](nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t bytes,
                 nghttp2_data_source* source, void* self) {
          return SessionOf(self).SendData(SourceOf(source), BytesOf(head, kFrameHeadBytes), bytes);
        });
    return made;
  }();
  return callbacks;
}

bool GrpcSession::Open() {
  flood_limit_ = FloodLimit();
  newest_id_ = 0;
  opened_ids_ = 0;
  fields_id_ = 0;
  has_settings_ = is_broken_ = false;
  static const nghttp2_option* const options = MakeOptions();
  nghttp2_session* session = nullptr;
  if (options == nullptr ||
      nghttp2_session_server_new2(&session, Callbacks(), this, options) != 0) {
    return false;
  }
  session_.reset(session);
  constexpr std::array<nghttp2_settings_entry, 4> kSettings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kConnectionCallsMax},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kCallFieldBytesMax},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  }};
  return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, kSettings.data(), kSettings.size()) ==
             0 &&
         nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                               kConnectionWindowBytes) == 0;
}

bool GrpcSession::has_ended() const {
  return nghttp2_session_want_read(session_.get()) == 0 &&
         nghttp2_session_want_write(session_.get()) == 0;
}

// ---- Receiving ----------------------------------------------------------------------------------

bool GrpcSession::Receive(std::span<const std::byte> bytes, TimePoint now) {
  received_at_ = now;
  flood_limit_.OnReceived(bytes.size());
  const ssize_t taken =
      nghttp2_session_mem_recv(session_.get(), AsAligned<uint8_t>(bytes.data()), bytes.size());
  if (taken >= 0 && !is_broken_) {
    if (flood_limit_.IsExceeded()) End(NGHTTP2_ENHANCE_YOUR_CALM);
    return true;
  }
  if (taken != NGHTTP2_ERR_NOMEM) counters_.CountBadRequest(BadRequestReason::kProtocol);
  return false;
}

void GrpcSession::OnBeginFrame(const nghttp2_frame_hd& head) {
  const bool begins_fields = head.type == NGHTTP2_HEADERS;
  if (begins_fields || head.type == NGHTTP2_CONTINUATION)
    fields_id_ = (head.flags & NGHTTP2_FLAG_END_HEADERS) == 0 ? head.stream_id : 0;
  const bool is_invalid = begins_fields ? !MayHaveFields(head.stream_id)
                                        : head.type == NGHTTP2_PRIORITY && head.stream_id == 0;
  if (is_invalid) End(NGHTTP2_PROTOCOL_ERROR);
}

// A client that opens a stream gives up the smaller ids that it has not opened. Fields of a stream
// that was open may be trailers that were sent before the client learned of its end. Only the
// newest ids are known.
bool GrpcSession::MayHaveFields(int32_t id) {
  constexpr int32_t kKnownIds = 64;
  if (id > newest_id_) {
    const int32_t step = (id - newest_id_) / 2;
    opened_ids_ = (step < kKnownIds ? opened_ids_ << step : 0) | 1;
    newest_id_ = id;
    return true;
  }
  const int32_t age = (newest_id_ - id) / 2;
  return age >= kKnownIds || (opened_ids_ >> age & 1) != 0;
}

int GrpcSession::OnBeginFields(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS || frame.headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  const int32_t id = frame.hd.stream_id;
  Http2Stream* const stream = handler_.OnNewStream(id);
  if (stream == nullptr) {
    RefuseStream(id);
    return 0;
  }
  const bool is_set = nghttp2_session_set_stream_user_data(session_.get(), id, stream) == 0;
  return is_set ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

void GrpcSession::RefuseStream(int32_t id) {
  refused_field_bytes_ = 0;
  counters_.CountRequest(Protocol::kGrpc);
  counters_.CountRefused(RefusedReason::kCapacity);
  const std::array<nghttp2_nv, 4> fields = {
      kOk, kContentType, Field("grpc-status", StatusCodeText(absl::StatusCode::kResourceExhausted)),
      Field("grpc-message", "the server is at its capacity (calls); try again later")};
  Check(nghttp2_submit_response(session_.get(), id, fields.data(), fields.size(), nullptr));
}

int GrpcSession::OnField(int32_t id, std::string_view name, std::string_view value) {
  Http2Stream* const stream = StreamOf(id);
  size_t bytes = 0;
  if (stream == nullptr) {
    bytes = refused_field_bytes_ += name.size() + value.size();
  } else {
    Tell(*stream, [&] { bytes = stream->OnField(name, value); });
  }
  if (bytes <= kHostileFieldBytes) return 0;
  EndEarly(id, NGHTTP2_ENHANCE_YOUR_CALM);       // OnSent ends the session
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // nghttp2 reports no more fields of the stream
}

void GrpcSession::OnFrame(const nghttp2_frame& frame) {
  const bool is_ack = (frame.hd.flags & NGHTTP2_FLAG_ACK) != 0;
  const bool has_fields = frame.hd.type == NGHTTP2_HEADERS;
  const bool has_data = frame.hd.type == NGHTTP2_DATA && frame.hd.length > 0;
  if (frame.hd.type == NGHTTP2_SETTINGS) has_settings_ = true;
  if (frame.hd.type == NGHTTP2_PING) OnPing(frame.ping, is_ack);
  if (has_fields || has_data) flood_limit_.OnUseful(frame.hd.length + kFrameHeadBytes);
  if (!has_fields && frame.hd.type != NGHTTP2_DATA) return;
  Http2Stream* const stream = StreamOf(frame.hd.stream_id);
  if (stream == nullptr) return;
  Tell(*stream, [&] {
    if (has_fields) stream->OnFields();
    if ((frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->OnEnd();
  });
}

void GrpcSession::OnPing(const nghttp2_ping& ping, bool is_ack) {
  if (!is_ack && !flood_limit_.AdmitPing(received_at_)) End(NGHTTP2_ENHANCE_YOUR_CALM);
  if (is_ack && std::ranges::equal(ping.opaque_data, kShutdownPing)) SubmitGoAway();
}

int GrpcSession::OnData(int32_t id, std::span<const std::byte> bytes) {
  // The windows of the streams bound what is received; the connection's window bounds nothing.
  const int consumed = nghttp2_session_consume_connection(session_.get(), bytes.size());
  if (consumed != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
  Http2Stream* const stream = StreamOf(id);
  if (stream != nullptr) Tell(*stream, [&] { stream->OnData(bytes); });
  return 0;
}

void GrpcSession::OnClosed(int32_t id) {
  Http2Stream* const stream = StreamOf(id);
  if (stream != nullptr) handler_.OnStreamClosed(*stream);
}

void GrpcSession::Consume(const Http2Stream& stream, size_t bytes) {
  Check(nghttp2_session_consume_stream(session_.get(), stream.id, bytes));
}

// ---- Sending ------------------------------------------------------------------------------------

bool GrpcSession::FillOutput() {
  while (!output_.is_full()) {
    const uint8_t* data = nullptr;
    const ssize_t bytes = nghttp2_session_mem_send(session_.get(), &data);
    if (bytes < 0) return false;
    if (bytes == 0) return !is_broken_;
    const std::span<const std::byte> frames = BytesOf(data, static_cast<size_t>(bytes));
    output_.AddFrames(fields_id_ == 0
                          ? frames
                          : AsBytes(WithFieldsTooLong(std::string(AsText(frames)), fields_id_)));
  }
  return true;
}

void GrpcSession::SubmitAnswer(Http2Stream& stream) {
  if (stream.state == Http2Stream::State::kAnswering) {
    return Check(nghttp2_session_resume_data(session_.get(), stream.id));
  }
  stream.state = Http2Stream::State::kAnswering;
  if (stream.response.unsent_bytes() > kSharedAnswerBytes) {
    const nghttp2_extpri turns = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    Check(nghttp2_session_change_extpri_stream_priority(session_.get(), stream.id, &turns, 1));
  }
  const std::array<nghttp2_nv, 2> fields = {kOk, kContentType};
  const nghttp2_data_provider provider = {
      .source = {.ptr = &stream},
      .read_callback = [](nghttp2_session*, int32_t, uint8_t*, size_t bytes_max, uint32_t* flags,
                          nghttp2_data_source* source, void* self) {
        return SessionOf(self).NextData(SourceOf(source), bytes_max, flags);
      }};
  Check(
      nghttp2_submit_response(session_.get(), stream.id, fields.data(), fields.size(), &provider));
}

void GrpcSession::SubmitEnd(Http2Stream& stream) {
  if (stream.state == Http2Stream::State::kAnswering) {
    return Check(nghttp2_session_resume_data(session_.get(), stream.id));
  }
  stream.state = Http2Stream::State::kAnswering;
  const std::array<nghttp2_nv, 5> fields = {kOk, kContentType, CodeField(stream),
                                            MessageField(stream), kAccepted};
  const bool is_unknown_coding = stream.response.end_code() == absl::StatusCode::kUnimplemented;
  Check(nghttp2_submit_response(session_.get(), stream.id, fields.data(), is_unknown_coding ? 5 : 4,
                                nullptr));
}

void GrpcSession::SubmitHttpStatus(Http2Stream& stream, std::string_view code) {
  stream.state = Http2Stream::State::kAnswering;
  const nghttp2_nv field = CopiedField(":status", code);
  Check(nghttp2_submit_response(session_.get(), stream.id, &field, 1, nullptr));
}

void GrpcSession::SubmitReset(const Http2Stream& stream) { EndEarly(stream.id, NGHTTP2_CANCEL); }

// The client may send data of the stream until it learns of the end. That data is no flood; all
// data under way fits the connection's window.
void GrpcSession::EndEarly(int32_t id, uint32_t error) {
  Check(nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, error));
  flood_limit_.AllowLate(kStreamWindowBytes, kConnectionWindowBytes);
}

ssize_t GrpcSession::NextData(const Http2Stream& stream, size_t bytes_max, uint32_t* flags) {
  const size_t rest = stream.response.unsent_bytes();
  if (rest == 0 && !stream.response.ends()) return NGHTTP2_ERR_DEFERRED;
  const size_t bytes = std::min(rest, bytes_max);
  if (bytes > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (bytes == rest && stream.response.ends()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const std::array<nghttp2_nv, 2> fields = {CodeField(stream), MessageField(stream)};
    const size_t count = stream.response.end_message().empty() ? 1 : 2;
    if (nghttp2_submit_trailer(session_.get(), stream.id, fields.data(), count) != 0)
      return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return static_cast<ssize_t>(bytes);
}

int GrpcSession::SendData(Http2Stream& stream, std::span<const std::byte> head, size_t bytes) {
  if (output_.is_full()) return NGHTTP2_ERR_WOULDBLOCK;
  try {
    output_.AddData(stream, head, bytes);
  } catch (const std::bad_alloc&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

void GrpcSession::OnSent(const nghttp2_frame& frame) {
  const bool has_fields = frame.hd.type == NGHTTP2_HEADERS;
  if (has_fields || frame.hd.type == NGHTTP2_DATA) flood_limit_.OnAnswered();
  if (frame.hd.type == NGHTTP2_GOAWAY && frame.goaway.error_code != NGHTTP2_NO_ERROR)
    counters_.CountBadRequest(BadRequestReason::kProtocol);
  if (frame.hd.type == NGHTTP2_RST_STREAM &&
      frame.rst_stream.error_code == NGHTTP2_ENHANCE_YOUR_CALM) {
    End(NGHTTP2_ENHANCE_YOUR_CALM);
  }
  // A ping passes other frames in nghttp2's queue, so it is submitted when GOAWAY was sent.
  if (frame.hd.type == NGHTTP2_GOAWAY && frame.goaway.last_stream_id == kStreamIdMax &&
      frame.goaway.error_code == NGHTTP2_NO_ERROR) {
    Check(nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, kShutdownPing.data()));
  }
  // The call was answered before the client has sent everything: it need not send the rest.
  if (has_fields && (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
      nghttp2_session_get_stream_remote_close(session_.get(), frame.hd.stream_id) == 0) {
    EndEarly(frame.hd.stream_id, NGHTTP2_NO_ERROR);
  }
}

void GrpcSession::SubmitPing() {
  Check(nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr));
}

void GrpcSession::SubmitShutdownNotice() { Check(nghttp2_submit_shutdown_notice(session_.get())); }

void GrpcSession::SubmitGoAway() {
  Check(nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session_.get()),
                              NGHTTP2_NO_ERROR, nullptr, 0));
}

void GrpcSession::End(uint32_t error) {
  Check(nghttp2_session_terminate_session(session_.get(), error));
}

// A call on a stream that has gone meanwhile fails without an effect on the session.
void GrpcSession::Check(int result) {
  if (nghttp2_is_fatal(result) != 0) is_broken_ = true;
}

}  // namespace hps::server
