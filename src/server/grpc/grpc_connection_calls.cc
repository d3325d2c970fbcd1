// The second half of GrpcConnection: what goes between nghttp2's session and the streams.
#include <algorithm>
#include <array>
#include <new>

#include "base/macros.h"
#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_session.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/http2_field.h"

namespace hps::server {
namespace {

constexpr size_t kFrameHeadBytes = 9;
// Larger answers take turns with the others of their connection.
constexpr size_t kSharedAnswerBytes = size_t{64} << 10;

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

nghttp2_nv CodeField(const GrpcStream& stream) {
  return Field("grpc-status", StatusCodeText(stream.response().end_code()));
}
nghttp2_nv MessageField(const GrpcStream& stream) {
  return CopiedField("grpc-message", stream.response().end_message());
}

}  // namespace

void GrpcConnection::Check(int result) {
  // A stream that has gone meanwhile is no reason to end.
  if (nghttp2_is_fatal(result) != 0) is_broken_ = true;
}

// Null: the server has no capacity for another call, or no memory.
GrpcStream* GrpcConnection::NewStream() {
  try {
    if (streams_.size() == streams_.capacity()) streams_.reserve(2 * streams_.size() + 1);
    GrpcStream* const stream = server_.TakeStream(streams_.size());
    if (stream != nullptr) streams_.push_back(stream);
    return stream;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

int GrpcConnection::BeginFields(int32_t id) {
  set_is_new(false);
  GrpcStream* const stream = NewStream();
  if (stream == nullptr) {
    refused_field_bytes_ = 0;
    server_.parts().counters->CountRequest(Protocol::kGrpc);
    server_.parts().counters->CountRefused(RefusedReason::kCapacity);
    const std::array<nghttp2_nv, 4> fields = {
        kOk, kContentType,
        Field("grpc-status", StatusCodeText(absl::StatusCode::kResourceExhausted)),
        Field("grpc-message", "the server is at its capacity (calls); try again later")};
    Check(nghttp2_submit_response(session_.get(), id, fields.data(), fields.size(), nullptr));
    return 0;
  }
  stream->index = streams_.size() - 1;
  stream->http = GrpcStream::Http::kOpen;
  stream->Begin(*this, id);
  return nghttp2_session_set_stream_user_data(session_.get(), id, stream) == 0
             ? 0
             : NGHTTP2_ERR_CALLBACK_FAILURE;
}

void GrpcConnection::Consume(const GrpcStream& stream, size_t bytes) {
  Check(nghttp2_session_consume_stream(session_.get(), stream.id(), bytes));
}

void GrpcConnection::SubmitAnswer(GrpcStream& stream) {
  if (stream.http == GrpcStream::Http::kAnswering) {
    Check(nghttp2_session_resume_data(session_.get(), stream.id()));
    return;
  }
  stream.http = GrpcStream::Http::kAnswering;
  if (stream.response().unsent_bytes() > kSharedAnswerBytes) {
    const nghttp2_extpri turns = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    Check(nghttp2_session_change_extpri_stream_priority(session_.get(), stream.id(), &turns, 1));
  }
  const std::array<nghttp2_nv, 2> fields = {kOk, kContentType};
  const nghttp2_data_provider provider = {.source = {.ptr = &stream},
                                          .read_callback = GrpcSession::ReadData};
  Check(nghttp2_submit_response(session_.get(), stream.id(), fields.data(), fields.size(),
                                &provider));
}

void GrpcConnection::SubmitEnd(GrpcStream& stream) {
  if (stream.http == GrpcStream::Http::kAnswering) {
    Check(nghttp2_session_resume_data(session_.get(), stream.id()));
    return;
  }
  stream.http = GrpcStream::Http::kAnswering;
  const std::array<nghttp2_nv, 5> fields = {kOk, kContentType, CodeField(stream),
                                            MessageField(stream), kAccepted};
  const bool is_unknown_coding = stream.response().end_code() == absl::StatusCode::kUnimplemented;
  Check(nghttp2_submit_response(session_.get(), stream.id(), fields.data(),
                                is_unknown_coding ? 5 : 4, nullptr));
}

void GrpcConnection::SubmitHttpStatus(GrpcStream& stream, std::string_view code) {
  stream.http = GrpcStream::Http::kAnswering;
  const nghttp2_nv field = CopiedField(":status", code);
  Check(nghttp2_submit_response(session_.get(), stream.id(), &field, 1, nullptr));
}

void GrpcConnection::ResetStream(GrpcStream& stream) { EndEarly(stream.id(), NGHTTP2_CANCEL); }

// What the client sends of it before it hears of the end brings nothing, but is no flood. All that
// is on its way fits the connection's window.
void GrpcConnection::EndEarly(int32_t id, uint32_t error) {
  Check(nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, error));
  flood_limit_.AllowLate(kStreamWindowBytes, kConnectionWindowBytes);
}

ssize_t GrpcConnection::NextData(GrpcStream& stream, size_t bytes_max, uint32_t* flags) {
  const size_t rest = stream.response().unsent_bytes();
  if (rest == 0 && !stream.response().ends()) return NGHTTP2_ERR_DEFERRED;
  const size_t bytes = std::min(rest, bytes_max);
  if (bytes > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (bytes == rest && stream.response().ends()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const std::array<nghttp2_nv, 2> fields = {CodeField(stream), MessageField(stream)};
    const size_t count = stream.response().end_message().empty() ? 1 : 2;
    if (nghttp2_submit_trailer(session_.get(), stream.id(), fields.data(), count) != 0)
      return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return static_cast<ssize_t>(bytes);
}

int GrpcConnection::SendData(GrpcStream& stream, std::span<const std::byte> head, size_t bytes) {
  if (out_.bytes() >= kOutputBytesMax) return NGHTTP2_ERR_WOULDBLOCK;
  if (!stream.in_output) {
    flushing_.push_back(&stream);
    stream.in_output = true;
  }
  out_.AddCopy(head);
  stream.response().TakeUnsent(bytes, &out_);
  stream.output_end = out_.end();
  return 0;
}

void GrpcConnection::OnSent(const nghttp2_frame& frame) {
  const bool has_fields = frame.hd.type == NGHTTP2_HEADERS;
  if (has_fields || frame.hd.type == NGHTTP2_DATA) flood_limit_.OnAnswered();
  if (frame.hd.type == NGHTTP2_GOAWAY && frame.goaway.error_code != NGHTTP2_NO_ERROR)
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
  // Answered before the client has sent everything: it need not.
  if (has_fields && (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
      nghttp2_session_get_stream_remote_close(session_.get(), frame.hd.stream_id) == 0) {
    EndEarly(frame.hd.stream_id, NGHTTP2_NO_ERROR);
  }
}

void GrpcConnection::CheckIdle() {
  if (flood_limit_.IsExceeded()) Refuse(NGHTTP2_ENHANCE_YOUR_CALM);
}

void GrpcConnection::CountUseful(size_t payload_bytes) {
  flood_limit_.OnUseful(payload_bytes + kFrameHeadBytes);
}

void GrpcConnection::CountPing() {
  if (!flood_limit_.AdmitPing(read_at_)) Refuse(NGHTTP2_ENHANCE_YOUR_CALM);
}

void GrpcConnection::Refuse(uint32_t error) {
  Check(nghttp2_session_terminate_session(session_.get(), error));
}

}  // namespace hps::server
