#include "server/http/connection.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "server/http/http_server.h"

namespace hps::server {
namespace {

// Holds every head, and most requests whole: 1,024 keys are 8 KiB.
constexpr size_t kInputBytes = 32 << 10;
static_assert(kInputBytes > kHeadBytesMax);
// A body that does not fit there gets room for what has come, times this.
constexpr size_t kBodyGrowth = 4;
constexpr size_t kBodyFirstBytes = 256 << 10;
// Requests that one turn of a thread begins: then the other connections have theirs, however many
// requests a client sends at once.
constexpr size_t kRequestsPerTurn = 16;

TimePoint Now() { return RealClock().Now(); }

const std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

Connection::Connection(HttpServer& server) : ServedConnection(server), server_(server) {}

Connection::~Connection() = default;

void Connection::OnDrivenElsewhere(uint32_t events) {
  if ((events & (kHangup | kReset | kCut | kTick)) != 0) NoteGone(events);
}

InferenceCall* Connection::TakeCall(bool /*may_start*/) {
  return std::exchange(run_pending_, false) ? this : nullptr;
}

void Connection::PutBack(InferenceCall& /*call*/) { run_pending_ = true; }

bool Connection::IsIdle() const {
  return state_ == State::kReading && phase_ == Phase::kHead && input_size_ == 0 && !readable_;
}

void Connection::Handle(uint32_t events, bool may_start) {
  if ((events & kOpened) != 0) OpenNow();
  if (state_ == State::kClosed) return;  // an event of the socket that it had
  if ((events & (kReady | kHangup)) != 0) readable_ = true;
  if ((events & kHangup) != 0) ended_ = true;
  if ((events & kAnswered) != 0) EndCall();
  if ((events & kCut) != 0 && state_ != State::kCalling) return Close();
  if (state_ == State::kCalling && (events & (kCut | kReset | kHangup)) != 0) {
    cut_ |= (events & (kCut | kReset)) != 0;
    NoteGone(events);
  }
  if ((events & kTick) != 0 && HandleTick()) return;
  Advance(may_start);
}

void Connection::Advance(bool may_start) {
  for (;;) {
    switch (state_) {
      case State::kClosed:
      case State::kCalling:
        return;
      case State::kReading:
        if (!may_start || turn_requests_ == kRequestsPerTurn) {
          if (input_size_ > 0 || readable_ || server_.draining()) {
            Wake();
          }
          return;
        }
        ReadOn();
        if (state_ == State::kReading) return;
        ++turn_requests_;
        break;
      case State::kWriting:
        if (!WriteOn()) return;
        break;
      case State::kLingering:
        return Linger();
    }
  }
}

void Connection::OpenNow() {
  OpenTransport();
  state_ = State::kReading;
  readable_ = ended_ = close_ = cut_ = unread_ = false;
  input_size_ = 0;
  ExpectNextRequest(Now());
  // A handshake is under way at once, so it is no idle connection.
  if (transport_.is_secured()) SetDeadline(arrival_ + server_.parts().config->header_timeout);
  if (!Watch()) Close();
}

void Connection::Close() {
  HPS_DCHECK(state_ != State::kCalling);
  state_ = State::kClosed;
  ReleaseInput();
  EndRequest();
  transport_.Close();
  EndConnection();
}

bool Connection::HandleTick() {
  const bool idle = state_ == State::kReading && phase_ == Phase::kHead && input_size_ == 0;
  const bool late = IsLate(Now());
  // A request that nobody had the time to read is answered before the end.
  const bool drains = idle && server_.draining();
  if (drains && (readable_ || HasUnread(1))) {
    readable_ = true;
    return false;
  }
  if (drains || (idle && late)) {
    Close();
    return true;
  }
  if (!late) return false;
  if (state_ == State::kCalling) {
    cut_ = true;
    SetDeadline(kNoDeadline);
    GiveUpCall();
    return true;
  }
  if (state_ != State::kLingering) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kTimeout);
  }
  if (state_ != State::kReading) {
    Close();
    return true;
  }
  Refuse({.code = 408, .message = "the request did not arrive in time", .reason = {}, .allow = {}});
  return false;
}

// ---- Reading ------------------------------------------------------------------------------------

void Connection::ExpectNextRequest(TimePoint now) {
  phase_ = Phase::kHead;
  head_bytes_ = 0;
  body_end_ = 0;
  body_size_ = 0;
  body_in_input_ = true;
  early_error_.reset();
  head_end_.Reset();
  head_ = RequestHead();
  route_ = Route();
  is_control_ = false;
  skipped_line_ = false;
  arrival_ = now;
  unread_wait_ = Duration::zero();
  ForgetArrival();
  const ServerConfig& config = *server_.parts().config;
  SetDeadline(now + (input_size_ > 0 ? config.header_timeout : config.idle_timeout));
}

void Connection::ReadOn() {
  while (state_ == State::kReading) {
    if (input_size_ > 0 && Parse() == Step::kDone) continue;
    if (!readable_ || !ReadMore()) break;
  }
  if (state_ != State::kReading || input_size_ > 0) return;
  // Also one that the drain did not find idle: it was being opened, or its answer was being read.
  if (server_.draining()) return Close();
  input_.Release();
}

// False: there is nothing to read now, or the connection is closed.
bool Connection::ReadMore() {
  const bool first = input_size_ == 0;
  const std::span<std::byte> room = RoomToRead();
  if (room.empty()) return state_ != State::kReading;
  const IoResult result = transport_.Read(room);
  switch (result.state) {
    case IoState::kDone:
      break;
    case IoState::kDrained:
      readable_ = ended_;
      break;
    case IoState::kBlocked:
      readable_ = false;
      ForgetArrival();
      return false;
    case IoState::kEnd:
    case IoState::kFailed:
      if (!first) server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
      Close();
      return false;
  }
  if (phase_ == Phase::kBody && !body_in_input_) {
    body_size_ += result.bytes;
  } else {
    input_size_ += result.bytes;
  }
  if (first) NoteArrival();
  return true;
}

// The request came when its socket had something to read, not when there was time to read it.
void Connection::NoteArrival() {
  const TimePoint now = Now();
  arrival_ = TakeArrival(now);
  unread_wait_ = now - arrival_;
  SetDeadline(now + server_.parts().config->header_timeout);
}

// Where the next bytes go. Empty: there is no memory, and the request has been refused.
std::span<std::byte> Connection::RoomToRead() {
  if (phase_ == Phase::kBody && !body_in_input_) {
    const size_t wanted = head_.content_length - body_size_;
    if (body_size_ == body_.bytes().size() && !TakeBodyRoom(body_size_ + 1)) return {};
    return body_.bytes().subspan(body_size_, std::min(wanted, body_.bytes().size() - body_size_));
  }
  if (input_.empty()) {
    absl::StatusOr<BufferPool::Lease> lease =
        server_.pool().Acquire(kInputBytes, BufferPool::Use::kRequest);
    if (!lease.ok()) {
      Refuse(NoRoom(lease.status()));
      return {};
    }
    input_ = *std::move(lease);
  }
  return input_.bytes().subspan(input_size_);
}

Connection::Step Connection::Parse() {
  switch (phase_) {
    case Phase::kHead:
      return ParseHead();
    case Phase::kBody: {
      const size_t have = body_in_input_ ? input_size_ - head_bytes_ : body_size_;
      if (have < head_.content_length) return Step::kNeedsMore;
      Answer();
      return Step::kDone;
    }
    case Phase::kChunks:
      return ParseChunks();
  }
  return Step::kNeedsMore;
}

Connection::Step Connection::ParseHead() {
  const std::string_view text = AsText(input_.bytes().first(input_size_));
  // The one empty line too many that some clients send after a body is passed over.
  if (text.starts_with("\r\n") && !std::exchange(skipped_line_, true)) {
    input_size_ -= 2;
    std::memmove(input_.bytes().data(), input_.bytes().data() + 2, input_size_);
    head_end_.Reset();
    return Step::kDone;
  }
  HttpError error{.code = 0, .message = {}, .reason = {}, .allow = {}};
  const std::optional<size_t> head_bytes = head_end_.Find(text, &error);
  if (!head_bytes && error.code == 0) return Step::kNeedsMore;
  if (!head_bytes || !parser_.ParseHead(text.substr(0, *head_bytes), &head_, &error)) {
    Refuse(std::move(error));
    return Step::kDone;
  }
  head_bytes_ = *head_bytes;
  body_end_ = head_bytes_;
  Judge();
  BeginBody();
  return Step::kDone;
}

void Connection::Judge() {
  route_ = FindRoute(head_.path);
  const bool metrics_only = server_.role() == HttpRole::kMetricsOnly;
  if (metrics_only && !route_.is_probe() && route_.path != "/metrics") {
    route_ = Route();
  }
  const bool is_control = route_.kind == RouteKind::kLoad || route_.kind == RouteKind::kUnload;
  const auto refuse = [this](int code, std::string message, BadRequestReason reason) {
    early_error_ = {.code = code, .message = std::move(message), .reason = reason, .allow = {}};
  };
  if (!route_.needs_no_token() && !server_.Admits(head_.authorization, false)) {
    server_.parts().counters->CountAuthFailure();
    early_error_ = {.code = 401, .message = "a bearer token is needed", .reason = {}, .allow = {}};
  } else if (route_.kind == RouteKind::kUnknown) {
    refuse(404, "there is no such path", BadRequestReason::kUnknown);
  } else if (!Allows(route_, head_.method)) {
    refuse(405, "this path does not take the method", BadRequestReason::kUnknown);
    early_error_->allow = AllowedMethods(route_);
  } else if (is_control && (!server_.parts().config->repository_control ||
                            !server_.Admits(head_.authorization, true))) {
    server_.parts().counters->CountAuthFailure();
    early_error_ = {.code = 403,
                    .message =
                        "loading and unloading by request is off ([server.security] "
                        "repository_control, with a token)",
                    .reason = {},
                    .allow = {}};
  } else if (head_.expects_other) {
    refuse(417, "the only expectation that the server knows is 100-continue",
           BadRequestReason::kProtocol);
  } else if (head_.content_coding == Coding::kUnknown) {
    refuse(415, "the server knows the content codings gzip and deflate",
           BadRequestReason::kContent);
  }
}

void Connection::BeginBody() {
  const ServerConfig& config = *server_.parts().config;
  const bool too_large = head_.content_length > body_bytes_max();
  const size_t room = input_.bytes().size() - head_bytes_;
  const size_t have = input_size_ - head_bytes_;
  const bool complete = !head_.chunked && head_.content_length <= have;
  if (!complete) SetDeadline(Now() + config.body_timeout);
  if (too_large && early_error_) return Refuse(*std::exchange(early_error_, std::nullopt));
  if (too_large) {
    return Refuse({.code = 413,
                   .message = absl::StrCat("the body is larger than ", body_bytes_max(), " bytes"),
                   .reason = BadRequestReason::kLimit,
                   .allow = {}});
  }
  if (early_error_ && !complete &&
      (head_.chunked || head_.expects_continue || head_.content_length > room)) {
    return Refuse(*std::exchange(early_error_, std::nullopt));
  }
  if (!complete && head_.expects_continue && !head_.is_1_0 && have == 0 && !SendContinue())
    return Close();
  body_in_input_ = !head_.chunked && head_.content_length <= room;
  phase_ = head_.chunked ? Phase::kChunks : Phase::kBody;
  if (body_in_input_) {
    body_end_ = head_bytes_ + head_.content_length;
    return;
  }
  if (head_.chunked) return;
  if (!TakeBodyRoom(std::max(have, std::min<size_t>(head_.content_length, kBodyFirstBytes))))
    return;
  std::memcpy(body_.bytes().data(), input_.bytes().data() + head_bytes_, have);
  body_size_ = have;
  input_size_ = head_bytes_;
}

// Unpacked, too.
uint64_t Connection::body_bytes_max() const {
  const uint64_t most = server_.parts().config->body_bytes_max;
  return route_.kind == RouteKind::kInfer ? most : std::min(most, kControlBytesMax);
}

// Room for `bytes`, and for some more that may come. False: refused.
bool Connection::TakeBodyRoom(size_t bytes) {
  if (bytes <= body_.bytes().size()) return true;
  const uint64_t limit = head_.chunked ? body_bytes_max() : head_.content_length;
  const size_t wanted = std::min<uint64_t>(std::max(bytes, body_size_ * kBodyGrowth), limit);
  absl::StatusOr<BufferPool::Lease> lease =
      server_.pool().Acquire(std::max(wanted, bytes), BufferPool::Use::kRequest);
  if (!lease.ok()) {
    Refuse(NoRoom(lease.status()));
    return false;
  }
  if (body_size_ > 0) std::memcpy(lease->bytes().data(), body_.bytes().data(), body_size_);
  body_ = *std::move(lease);
  return true;
}

// Of a buffer that a request did not get: it could never have it, or not now. Of the latter the
// server takes note.
HttpError Connection::NoRoom(const absl::Status& status) {
  HttpError error = ErrorOf(status);
  if (absl::IsOutOfRange(status)) {
    error.code = 413;
    error.reason = BadRequestReason::kLimit;
    return error;
  }
  server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  server_.NoteRefused();
  return error;
}

bool Connection::SendContinue() {
  iovec piece{.iov_base = const_cast<char*>(kContinue.data()), .iov_len = kContinue.size()};
  const IoResult result = transport_.Write({&piece, 1});
  // The send buffer is empty between two requests: only a broken connection takes less.
  return result.state == IoState::kDone && result.bytes == kContinue.size();
}

Connection::Step Connection::ParseChunks() {
  size_t consumed = head_bytes_;
  body_in_input_ = false;
  for (;;) {
    const std::string_view text = AsText(input_.bytes().subspan(consumed, input_size_ - consumed));
    RequestParser::ChunkStep step;
    HttpError error;
    if (!parser_.ParseChunk(text, body_bytes_max(), &step, &error)) {
      Refuse(std::move(error));
      return Step::kDone;
    }
    if (!step.data.empty()) {
      if (!TakeBodyRoom(body_size_ + step.data.size())) return Step::kDone;
      std::memcpy(body_.bytes().data() + body_size_, step.data.data(), step.data.size());
      body_size_ += step.data.size();
    }
    consumed += step.consumed;
    if (step.finished) {
      body_end_ = consumed;
      Answer();
      return Step::kDone;
    }
    if (step.needs_more) break;
  }
  // Keep what was not understood yet behind the head.
  std::memmove(input_.bytes().data() + head_bytes_, input_.bytes().data() + consumed,
               input_size_ - consumed);
  input_size_ -= consumed - head_bytes_;
  if (input_size_ < input_.bytes().size()) return Step::kNeedsMore;
  Refuse({.code = 400,
          .message = "the head of a chunk is too large",
          .reason = BadRequestReason::kLimit,
          .allow = {}});
  return Step::kDone;
}

std::span<char> Connection::Body() const {
  if (!unpacked_.memory.empty()) {
    return {AsChars(unpacked_.memory.bytes().data()), unpacked_.size};
  }
  if (body_in_input_) {
    return {AsChars(input_.bytes().data()) + head_bytes_, body_end_ - head_bytes_};
  }
  if (body_.empty()) return {};
  return {AsChars(body_.bytes().data()), body_size_};
}

}  // namespace hps::server
