#include "server/http/http_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "server/http/http_connection.h"
#include "server/http/http_server.h"
#include "server/http/json_infer_response.h"

namespace hps::server {
namespace {

constexpr size_t kRowsAlignment = 64;
// Encoding more JSON than this, or packing more, takes longer than the lookup.
constexpr uint64_t kLongAnswerBytesMin = 1 << 20;
// JSON of at most this size may grow by doubling; larger JSON is reserved at once, so that it takes
// no more than what was accounted for.
constexpr size_t kTextBytesGrown = 16 << 10;

// Why a request could not be decoded, for the counters; none if the request is not at fault.
std::optional<BadRequestReason> ReasonOf(const absl::Status& decoded, bool failed_in_syntax) {
  switch (decoded.code()) {
    case absl::StatusCode::kOutOfRange:
      return BadRequestReason::kLimit;
    case absl::StatusCode::kNotFound:
      return BadRequestReason::kUnknown;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return std::nullopt;
    default:
      return failed_in_syntax ? BadRequestReason::kSyntax : BadRequestReason::kContent;
  }
}

}  // namespace

HttpCall::HttpCall(HttpServer& server, HttpConnection& connection)
    : server_(server), connection_(connection) {}

absl::Status HttpCall::Unpack(Coding coding, uint64_t bytes_max, std::span<char>* body) {
  HPS_ASSIGN_OR_RETURN(unpacked_, Inflate(coding, std::as_bytes(*body), bytes_max, server_.pool()));
  *body = {AsChars(unpacked_.memory.bytes().data()), unpacked_.size};
  return absl::OkStatus();
}

std::optional<HttpCall::Refusal> HttpCall::StartInfer(const InferStart& start) {
  request.protocol = Protocol::kHttp;
  request.arrival = start.arrival;
  request.socket_wait = start.socket_wait;
  request.model = start.route.model;
  request.version = start.route.version;
  absl::Status status = Decode(start);
  if (absl::IsResourceExhausted(status)) return Refusal{Refusal::Kind::kNoRoom, std::move(status)};
  if (!status.ok()) {
    const auto reason = ReasonOf(status, decoder_.failed_in_syntax());
    return Refusal{Refusal::Kind::kBadRequest, std::move(status), reason};
  }
  request.body_bytes = start.lent_bytes + unpacked_.memory.bytes().size() + decoder_.lent_bytes();
  status = server_.parts().inference->Prepare(*this);
  if (!status.ok()) return Refusal{Refusal::Kind::kRefused, std::move(status)};
  absl::StatusOr<BufferPool::Lease> rows =
      server_.pool().Acquire(row_bytes(), BufferPool::Use::kAnswer);
  if (!rows.ok()) return Refusal{Refusal::Kind::kNoRoom, rows.status()};
  rows_ = *std::move(rows);
  std::byte* at = rows_.bytes().data();
  for (OutputTensor& output : outputs) {
    output.data = at;
    at += RoundUp(output.byte_count, kRowsAlignment);
  }
  kind_ = TakesLong(start.head.accepted_coding) ? Kind::kLongInfer : Kind::kInfer;
  MutexLock lock(mutex_);
  state_ = State::kRunning;
  return std::nullopt;
}

absl::Status HttpCall::Decode(const InferStart& start) {
  const uint64_t json_bytes = start.head.json_bytes.value_or(start.body.size());
  if (json_bytes > start.body.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length is ",
                                                   json_bytes, ", the body has only ",
                                                   start.body.size(), " bytes"));
  }
  if (start.head.json_bytes != 0) {
    return decoder_.Decode({.json = start.body.first(json_bytes),
                            .binary = std::as_bytes(start.body.subspan(json_bytes))},
                           server_.pool(), server_.parts().config->body_bytes_max, &request);
  }
  HPS_ASSIGN_OR_RETURN(const ModelMetadata model, server_.parts().repository->Metadata(
                                                      start.route.model, start.route.version));
  return decoder_.DecodeRaw(std::as_bytes(start.body), model.inputs, &request);
}

uint64_t HttpCall::row_bytes() const {
  uint64_t bytes = 0;
  for (const OutputTensor& output : outputs) bytes += RoundUp(output.byte_count, kRowsAlignment);
  return bytes;
}

// The buffer as the pool lends it, and the text of the outputs that are sent as JSON.
uint64_t HttpCall::AnswerBytes() const {
  return BufferPool::LentFor(row_bytes()) +
         AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
}

bool HttpCall::TakesLong(Coding accepted_coding) const {
  const uint64_t text_bytes =
      AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
  const bool packs = accepted_coding != Coding::kIdentity;
  return text_bytes + (packs ? row_bytes() : 0) >= kLongAnswerBytesMin;
}

absl::Status HttpCall::StartControl(const Route& route) {
  kind_ = route.kind == RouteKind::kLoad ? Kind::kLoad : Kind::kUnload;
  model_ = route.model;
  return server_.PostSlow(this);
}

void HttpCall::Run() {
  if (!is_control()) return connection_.OnCallEnded();
  ModelRepository& repository = *server_.parts().repository;
  absl::Status status;
  try {
    status = kind_ == Kind::kLoad ? repository.Load(model_) : repository.Unload(model_);
  } catch (const std::bad_alloc&) {
    status = hps::OutOfMemory("out of memory; try again later");
  }
  OnDone(status);
}

void HttpCall::OnDone(const absl::Status& status) {
  result_ = status;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kCancelled) {
      state_ = State::kEnded;
      return;
    }
    state_ = State::kIdle;
  }
  if (status.ok() && kind_ == Kind::kLongInfer && server_.PostEncoding(this).ok()) return;
  connection_.OnCallEnded();
}

// The connection is not told of the end while the server is being asked: it would reset the call.
void HttpCall::Cancel() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kRunning) return;
    state_ = State::kCancelled;
  }
  server_.parts().inference->Cancel(*this);
  {
    MutexLock lock(mutex_);
    const bool has_ended = state_ == State::kEnded;
    state_ = has_ended ? State::kIdle : State::kRunning;
    if (!has_ended) return;
  }
  connection_.OnCallEnded();
}

absl::Status HttpCall::TakeResult() { return std::exchange(result_, absl::OkStatus()); }

absl::Status HttpCall::Encode(HttpResponseWriter* response, uint64_t* json_bytes) {
  std::string& text = response->text();
  const uint64_t bytes_max = server_.parts().config->response_bytes_max;
  const uint64_t text_max = AnswerTextMax(*this, decoder_, bytes_max);
  if (text_max > kTextBytesGrown) text.reserve(text_max);
  uint64_t binary_bytes = 0;
  if (absl::Status encoded = EncodeAnswer(*this, decoder_, bytes_max, &text, &binary_bytes);
      !encoded.ok()) {
    text.clear();
    return encoded;
  }
  response->AddPiece(AsBytes(std::string_view(text)));
  *json_bytes = 0;
  for (const OutputTensor& output : outputs) {
    if (!decoder_.wants_binary(output.name)) continue;
    *json_bytes = text.size();
    if (output.byte_count > 0) response->AddPiece({output.data, output.byte_count});
  }
  return absl::OkStatus();
}

void HttpCall::ReleaseRequest() {
  decoder_.Reset();
  unpacked_ = PackedBody();
}

void HttpCall::End() {
  ReleaseRequest();
  rows_.Release();
  Reset();
}

}  // namespace hps::server
