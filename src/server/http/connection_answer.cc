// The second half of Connection: from a complete request to the last byte of its answer.
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/no_memory.h"
#include "server/http/connection.h"
#include "server/http/http_server.h"
#include "server/http/json_infer_response.h"
#include "server/http/json_writer.h"

namespace hps::server {
namespace {

// Smaller bodies are sent as they are, whatever the client accepts.
constexpr size_t kPackedBytesMin = 1024;
// Text of an answer that a connection keeps room for.
constexpr size_t kTextBytesKept = 16 << 10;
constexpr size_t kRowsAlignment = 64;
// Of JSON, or of what is to be packed: encoding more takes longer than looking it up.
constexpr uint64_t kLongAnswerBytesMin = 1 << 20;

constexpr std::string_view kNoMemoryAnswer =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    "Content-Length: 63\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    "{\"error\":\"there is no memory for the request; try again later\"}";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::optional<BadRequestReason> ReasonOf(const absl::Status& decoded, bool failed_in_syntax) {
  switch (decoded.code()) {
    case absl::StatusCode::kOutOfRange:
      return BadRequestReason::kLimit;
    case absl::StatusCode::kNotFound:
      return BadRequestReason::kUnknown;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return std::nullopt;  // not the request's fault
    default:
      return failed_in_syntax ? BadRequestReason::kSyntax : BadRequestReason::kContent;
  }
}

std::string_view CodingName(Coding coding) { return coding == Coding::kGzip ? "gzip" : "deflate"; }

}  // namespace

void Connection::Answer() {
  server_.CountRequest();
  close_ = !head_.keep_alive || close_;
  set_is_new(false);
  if (early_error_) return SendError(*std::exchange(early_error_, std::nullopt));
  if (const absl::Status status = Unpack(); !status.ok()) {
    const bool has_no_room = absl::IsOutOfRange(status) || absl::IsResourceExhausted(status);
    if (has_no_room) return SendError(NoRoom(status));
    return SendError(status, BadRequestReason::kContent);
  }
  switch (route_.kind) {
    case RouteKind::kInfer:
      UseTurn();  // what others wait for says nothing of the time that lookups take
      return StartInfer();
    case RouteKind::kLoad:
      if (const absl::Status status = CheckLoad(Body()); !status.ok())
        return SendError(status, BadRequestReason::kContent);
      return StartControl();
    case RouteKind::kUnload:
      return StartControl();
    default:
      return SendApi(AnswerApi(server_.parts(), route_, head_.query, Body()));
  }
}

absl::Status Connection::Unpack() {
  const std::span<char> body = Body();
  if (head_.content_coding == Coding::kIdentity || body.empty()) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(unpacked_, Inflate(head_.content_coding, std::as_bytes(body),
                                          body_bytes_max(), server_.pool()));
  body_.Release();  // nobody reads the packed one any more, and its tensors may need the room
  return absl::OkStatus();
}

void Connection::StartInfer() {
  const std::span<char> body = Body();
  const uint64_t json_bytes = head_.json_bytes.value_or(body.size());
  if (json_bytes > body.size()) {
    return SendError(
        absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length is ", json_bytes,
                                                ", the body has only ", body.size(), " bytes")),
        BadRequestReason::kContent);
  }
  request.protocol = Protocol::kHttp;
  request.arrival = arrival_;
  request.unread_wait = unread_wait_;
  request.model = route_.model;
  request.version = route_.version;
  const absl::Status decoded = Decode(body, json_bytes);
  if (absl::IsResourceExhausted(decoded)) return SendError(NoRoom(decoded));
  if (!decoded.ok()) return SendError(decoded, ReasonOf(decoded, decoder_.failed_in_syntax()));
  request.body_bytes = input_.bytes().size() + body_.bytes().size() +
                       unpacked_.memory.bytes().size() + decoder_.lent_bytes();
  if (const absl::Status status = server_.parts().inference->Prepare(*this); !status.ok()) {
    return SendRefusal(status);
  }
  absl::StatusOr<BufferPool::Lease> rows =
      server_.pool().Acquire(row_bytes(), BufferPool::Use::kAnswer);
  if (!rows.ok()) return SendError(NoRoom(rows.status()));
  rows_ = *std::move(rows);
  std::byte* at = rows_.bytes().data();
  for (OutputTensor& output : outputs) {
    output.data = at;
    at += RoundUp(output.byte_count, kRowsAlignment);
  }
  takes_long_ = TakesLong();
  state_ = State::kCalling;
  SetDeadline(ended_ ? RealClock().Now() + kGoneTimeout : kNoDeadline);
  {
    MutexLock lock(calling_mutex_);
    is_calling_ = true;
  }
  run_pending_ = true;
}

uint64_t Connection::row_bytes() const {
  uint64_t bytes = 0;
  for (const OutputTensor& output : outputs) bytes += RoundUp(output.byte_count, kRowsAlignment);
  return bytes;
}

// The buffer as the pool lends it, and the text of what is sent as JSON.
uint64_t Connection::AnswerBytes() const {
  return BufferPool::LentFor(row_bytes()) +
         AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
}

bool Connection::TakesLong() const {
  const uint64_t text_bytes =
      AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
  const bool packs = head_.accepted_coding != Coding::kIdentity;
  return text_bytes + (packs ? row_bytes() : 0) >= kLongAnswerBytesMin;
}

absl::Status Connection::Decode(std::span<char> body, uint64_t json_bytes) {
  if (head_.json_bytes != 0) {
    return decoder_.Decode(
        {.json = body.first(json_bytes), .binary = std::as_bytes(body.subspan(json_bytes))},
        server_.pool(), server_.parts().config->body_bytes_max, &request);
  }
  HPS_ASSIGN_OR_RETURN(const ModelMetadata model,
                       server_.parts().repository->Metadata(route_.model, route_.version));
  return decoder_.DecodeRaw(std::as_bytes(body), model.inputs, &request);
}

void Connection::OnDone(const absl::Status& status) {
  call_status_ = status;
  {
    MutexLock lock(calling_mutex_);
    answered_meanwhile_ = is_giving_up_;
    if (answered_meanwhile_) return;
    is_calling_ = false;
  }
  if (status.ok() && takes_long_ && !is_control_ && server_.PostEncoding(this).ok()) return;
  TellAnswered();
}

void Connection::TellAnswered() {
  if (Note(kAnswered)) Drive(/*may_start=*/false);
}

void Connection::StartControl() {
  is_control_ = true;
  if (const absl::Status posted = server_.PostSlow(this); !posted.ok()) return SendError(posted);
  state_ = State::kCalling;  // its end is told as an event, so not before this
  SetDeadline(kNoDeadline);
}

void Connection::Run() {
  if (!is_control_) return TellAnswered();
  ModelRepository& repository = *server_.parts().repository;
  absl::Status status;
  try {
    status = route_.kind == RouteKind::kLoad ? repository.Load(route_.model)
                                             : repository.Unload(route_.model);
  } catch (const std::bad_alloc&) {
    status = NoMemory();
  }
  OnDone(status);
}

void Connection::EndCall() {
  HPS_CHECK(state_ == State::kCalling);
  const absl::Status status = std::exchange(call_status_, absl::OkStatus());
  state_ = State::kReading;  // the call is the connection's again
  if (cut_) return Close();
  if (!status.ok()) return is_control_ ? SendError(status) : SendRefusal(status);
  if (is_control_) return SendApi(ApiAnswer());
  SendRows();
}

// Of events that somebody brings while the call may be looked up.
void Connection::NoteGone(uint32_t events) {
  const TimePoint now = RealClock().Now();
  if ((events & (kCut | kReset)) != 0 || ((events & kTick) != 0 && IsLate(now)))
    return GiveUpCall();
  MutexLock lock(calling_mutex_);
  if (is_calling_ && (events & kHangup) != 0) SetDeadline(now + kGoneTimeout);
}

// Nobody reads the answer: asks the server to end the call.
void Connection::GiveUpCall() {
  {
    MutexLock lock(calling_mutex_);
    if (!is_calling_ || is_giving_up_) return;
    is_giving_up_ = true;
  }
  server_.parts().inference->Cancel(*this);
  {
    MutexLock lock(calling_mutex_);
    is_giving_up_ = false;
    if (!std::exchange(answered_meanwhile_, false)) return;
    is_calling_ = false;
  }
  TellAnswered();
}

// An allocation failed on the way of this connection's request, which no one else has now. The
// answer lies ready, and the connection ends with it.
void Connection::OnNoMemory() {
  HPS_CHECK(state_ != State::kCalling);
  if (state_ == State::kClosed) return;
  server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  if (state_ != State::kReading) return Close();  // some of another answer may have been sent
  ReleaseInput();
  EndRequest();
  iovec piece{.iov_base = const_cast<char*>(kNoMemoryAnswer.data()),
              .iov_len = kNoMemoryAnswer.size()};
  const IoResult result = transport_.Write({&piece, 1});
  if (result.state != IoState::kDone) return Close();
  transport_.EndSending();
  state_ = State::kLingering;
  SetDeadline(RealClock().Now() + server_.parts().linger_timeout);
  Linger();
}

void Connection::SendRows() {
  // Before it grows by doubling: no more than what is accounted for is taken.
  const uint64_t text_max =
      AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
  if (text_max > kTextBytesKept) text_.reserve(text_max);
  uint64_t binary_bytes = 0;
  const absl::Status encoded = EncodeAnswer(
      *this, decoder_, server_.parts().config->response_bytes_max, &text_, &binary_bytes);
  if (!encoded.ok()) {
    text_.clear();
    return SendError(encoded, BadRequestReason::kContent);
  }
  pieces_.push_back(AsBytes(std::string_view(text_)));
  bool has_binary = false;
  for (const OutputTensor& output : outputs) {
    if (!decoder_.wants_binary(output.name)) continue;
    has_binary = true;
    if (output.byte_count > 0) pieces_.push_back({output.data, output.byte_count});
  }
  if (!has_binary) return Send(200, "application/json", {});
  std::array<char, 64> field;
  constexpr std::string_view kName = "Inference-Header-Content-Length: ";
  char* end = std::copy(kName.begin(), kName.end(), field.begin());
  end = std::to_chars(end, field.data() + field.size() - 2, text_.size()).ptr;
  *end++ = '\r';
  *end++ = '\n';
  Send(200, "application/octet-stream",
       std::string_view(field.data(), static_cast<size_t>(end - field.data())));
}

void Connection::SendError(const absl::Status& status, std::optional<BadRequestReason> reason) {
  if (status == NoMemory()) return OnNoMemory();
  HttpError error = ErrorOf(status);
  error.reason = reason;
  if (error.code >= 500 && error.code != 501 && error.code != 503 && error.code != 504) {
    LogError(absl::StrCat("http: a request failed: ", status.ToString()));
    error.message = "the server failed; its log has the reason";
  }
  SendError(std::move(error));
}

// Of an inference.
void Connection::SendRefusal(const absl::Status& status) {
  const bool is_load = status.code() == absl::StatusCode::kResourceExhausted ||
                       status.code() == absl::StatusCode::kDeadlineExceeded;
  if (is_load) server_.NoteRefused();
  SendError(status);
}

void Connection::SendError(HttpError error) {
  if (error.reason) server_.parts().counters->CountBadRequest(*error.reason);
  if (!IsUtf8(error.message)) {
    std::replace_if(
        error.message.begin(), error.message.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  }
  JsonWriter json(&text_);
  json.BeginObject();
  json.Member("error", error.message);
  json.EndObject();
  pieces_.push_back(AsBytes(std::string_view(text_)));
  rows_.Release();
  ReleaseRequest();
  Reset();  // the share of the capacity, when the memory is there
  std::string extra;
  if (error.code == 429) extra = "Retry-After: 1\r\n";
  if (error.code == 401) extra = "WWW-Authenticate: Bearer\r\n";
  if (!error.allow.empty()) extra = absl::StrCat("Allow: ", View(error.allow), "\r\n");
  Send(error.code, "application/json", extra);
}

void Connection::Refuse(HttpError error) {
  if (error.code == 400 || error.code == 431 || error.code == 413 || error.code == 408) {
    server_.CountRequest();
  }
  close_ = true;
  unread_ = true;
  SendError(std::move(error));
}

void Connection::SendApi(absl::StatusOr<ApiAnswer> answer) {
  if (!answer.ok()) {
    const bool unknown = answer.status().code() == absl::StatusCode::kNotFound;
    const bool syntax = answer.status().code() == absl::StatusCode::kInvalidArgument;
    std::optional<BadRequestReason> reason;
    if (unknown) reason = BadRequestReason::kUnknown;
    if (syntax) reason = BadRequestReason::kContent;
    return SendError(answer.status(), reason);
  }
  api_ = *std::move(answer);
  pieces_.push_back(AsBytes(api_.body()));
  const std::string_view extra =
      route_.kind == RouteKind::kPage ? "X-Content-Type-Options: nosniff\r\n" : "";
  Send(200, api_.content_type, extra);
}

// Puts the status line and the fields before `pieces_` and begins to write.
void Connection::Send(int code, std::string_view content_type, std::string_view extra_fields) {
  close_ = close_ || server_.draining();
  ReleaseRequest();
  uint64_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces_) bytes += piece.size();
  Coding coding = Coding::kIdentity;
  const bool may_pack = head_.accepted_coding != Coding::kIdentity && bytes >= kPackedBytesMin &&
                        head_.method != Method::kHead;  // of which no body is sent
  if (may_pack && Pack(bytes)) {
    coding = head_.accepted_coding;
    bytes = packed_.size;
  }
  fields_.clear();
  absl::StrAppend(&fields_, "HTTP/1.1 ", code, " ", View(ReasonPhrase(code)),
                  "\r\nContent-Type: ", View(content_type), "\r\nContent-Length: ", bytes, "\r\n");
  fields_.append(extra_fields);
  if (coding != Coding::kIdentity) {
    absl::StrAppend(&fields_, "Content-Encoding: ", View(CodingName(coding)),
                    "\r\nVary: Accept-Encoding\r\n");
  }
  if (close_) {
    fields_.append("Connection: close\r\n");
  } else if (head_.is_1_0) {
    fields_.append("Connection: keep-alive\r\n");
  }
  fields_.append("\r\n");
  unsent_.clear();
  unsent_begin_ = 0;
  unsent_.push_back({.iov_base = fields_.data(), .iov_len = fields_.size()});
  if (head_.method != Method::kHead) {
    for (const std::span<const std::byte> piece : pieces_) {
      if (piece.empty()) continue;
      unsent_.push_back(
          {.iov_base = const_cast<std::byte*>(piece.data()), .iov_len = piece.size()});
    }
  }
  state_ = State::kWriting;
  SetDeadline(kNoDeadline);
}

// An answer of `bytes`. False: it is sent as it is, since there is no room to pack it, or that
// makes it no smaller.
bool Connection::Pack(uint64_t bytes) {
  const absl::Status reserved =
      server_.parts().inference->ReserveBytes(BufferPool::LentFor(bytes), &packed_share_);
  if (!reserved.ok()) return false;
  absl::StatusOr<PackedBody> packed =
      Deflate(head_.accepted_coding, pieces_, bytes, server_.pool());
  if (!packed.ok()) {
    packed_share_.Release();
    return false;
  }
  packed_ = *std::move(packed);
  pieces_.assign(1, packed_.memory.bytes().first(packed_.size));
  return true;
}

// False: the rest must wait.
bool Connection::WriteOn() {
  while (unsent_begin_ < unsent_.size()) {
    const size_t count = std::min<size_t>(unsent_.size() - unsent_begin_, IOV_MAX);
    const IoResult result = transport_.Write({unsent_.data() + unsent_begin_, count});
    if (result.state == IoState::kBlocked) {
      // From when the client first let it wait; what it takes later buys no more time.
      if (!has_deadline()) SetDeadline(RealClock().Now() + server_.parts().config->write_timeout);
      return false;
    }
    if (result.state != IoState::kDone) {
      Close();
      return true;
    }
    size_t sent = result.bytes;
    while (sent > 0) {
      iovec& piece = unsent_[unsent_begin_];
      const size_t step = std::min(sent, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + step;
      piece.iov_len -= step;
      sent -= step;
      if (piece.iov_len == 0) ++unsent_begin_;
    }
  }
  EndAnswer();
  return true;
}

// What the request brought, when its answer is there: a client that reads slowly holds none of it.
// What has come behind the request stays, unless nobody is to read it.
void Connection::ReleaseRequest() {
  decoder_.Reset();
  body_.Release();
  unpacked_ = PackedBody();
  unread_ |= close_ && input_size_ != body_end_;
  if (close_ || input_size_ == body_end_) ReleaseInput();
}

void Connection::ReleaseInput() {
  input_.Release();
  input_size_ = body_end_ = 0;
}

// Gives back all that the request held, also what its call held of the server's capacity. That
// comes last: who is admitted in its place finds the memory there.
void Connection::EndRequest() {
  ReleaseRequest();
  rows_.Release();
  packed_ = PackedBody();
  packed_share_.Release();
  api_ = ApiAnswer();
  early_error_.reset();
  ClearTensorList(&pieces_);
  ClearTensorList(&unsent_);
  unsent_begin_ = 0;
  text_.clear();
  if (text_.capacity() > kTextBytesKept) text_ = std::string();
  Reset();
}

// Its last byte is with the system.
void Connection::EndAnswer() {
  const TimePoint now = RealClock().Now();
  if (close_) {
    const bool has_read_all = !unread_ && !readable_;
    EndRequest();
    transport_.EndSending();
    if (has_read_all) return Close();
    state_ = State::kLingering;
    return SetDeadline(now + server_.parts().linger_timeout);
  }
  const size_t rest = input_size_ - body_end_;
  if (rest > 0) {
    std::memmove(input_.bytes().data(), input_.bytes().data() + body_end_, rest);
  }
  input_size_ = rest;
  body_end_ = 0;
  EndRequest();
  state_ = State::kReading;
  ExpectNextRequest(now);
}

void Connection::Linger() {
  std::array<std::byte, 4096> thrown_away;
  for (size_t i = 0; i < 256; ++i) {
    const IoResult result = transport_.Read(thrown_away);
    if (result.state == IoState::kBlocked) return;
    // The client's end, which may have come before, is not reported again: it is read.
    if (result.state != IoState::kDone && result.state != IoState::kDrained) return Close();
  }
  Close();  // a mebibyte: it does not listen
}

}  // namespace hps::server
