#include "server/http/http_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "server/http/head_check.h"
#include "server/http/http_server.h"

namespace hps::server {
namespace {

// Requests that one turn of a thread begins. Then other connections have their turn, however many
// requests a client sends at once.
constexpr size_t kRequestsPerTurn = 16;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Of the dashboard's files: the page keeps a token, so no other page may show it in a frame, and it
// runs nothing but these files.
constexpr std::string_view kDashboardFields =
    "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n";
// Of everything else: the next answer may differ, and may need a token.
constexpr std::string_view kDataFields =
    "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

TimePoint Now() { return RealClock().Now(); }

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

HttpConnection::HttpConnection(HttpServer& server)
    : ServedConnection(server),
      server_(server),
      reader_(server.pool()),
      call_(server, *this),
      writer_(server.pool(), *server.parts().inference) {}

void HttpConnection::OnCallEnded() {
  if (Note(kAnswered)) Drive(/*may_start=*/false);
}

void HttpConnection::OnDrivenElsewhere(uint32_t events) {
  if ((events & (kHangup | kReset | kCut | kTick)) != 0) OnClientGone(events);
}

InferenceCall* HttpConnection::TakeCall(bool /*may_start*/) {
  return std::exchange(run_pending_, false) ? &call_ : nullptr;
}

void HttpConnection::PutBack(InferenceCall& /*call*/) { run_pending_ = true; }

bool HttpConnection::IsIdle() const { return awaits_request() && !readable_; }

void HttpConnection::Handle(uint32_t events, bool may_start) {
  if ((events & kOpened) != 0) OpenNow();
  if (state_ == State::kClosed) return;  // an event of the socket that it had
  if ((events & (kReady | kHangup)) != 0) readable_ = true;
  if ((events & kHangup) != 0) hung_up_ = true;
  if ((events & kAnswered) != 0) EndCall();
  if ((events & kCut) != 0 && !has_call()) return Close();
  if (has_call() && (events & (kCut | kReset | kHangup)) != 0) {
    if ((events & (kCut | kReset)) != 0) state_ = State::kAbandoned;
    OnClientGone(events);
  }
  if ((events & kTick) != 0 && HandleTick()) return;
  Advance(may_start);
}

void HttpConnection::Advance(bool may_start) {
  for (;;) {
    switch (state_) {
      case State::kClosed:
      case State::kCalling:
      case State::kAbandoned:
        return;
      case State::kReading:
        if (!may_start || turn_requests_ == kRequestsPerTurn) {
          if (reader_.has_input() || readable_ || server_.draining()) Wake();
          return;
        }
        ReadRequest();
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

void HttpConnection::OpenNow() {
  OpenTransport();
  state_ = State::kReading;
  after_ = After::kNextRequest;
  readable_ = hung_up_ = false;
  BeginRequest(Now());
  // A TLS handshake begins at once, so the connection is not idle.
  if (transport_.is_secured()) SetDeadline(arrival_.at + server_.parts().config->header_timeout);
  if (!Watch()) Close();
}

void HttpConnection::Close() {
  HPS_DCHECK(!has_call());
  state_ = State::kClosed;
  reader_.ReleaseInput();
  EndRequest();
  transport_.Close();
  EndConnection();
}

void HttpConnection::OnNoMemory() {
  HPS_CHECK(!has_call());
  if (state_ == State::kClosed) return;
  server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  Close();
}

// True: the tick has been dealt with.
bool HttpConnection::HandleTick() {
  const bool is_late = IsLate(Now());
  // A request that no thread has had time to read is answered before the connection ends.
  const bool drains = awaits_request() && server_.draining();
  if (drains && (readable_ || HasUnread(1))) {
    readable_ = true;
    return false;
  }
  if (drains || (awaits_request() && is_late)) {
    Close();
    return true;
  }
  return is_late && HandleLateTick();
}

bool HttpConnection::HandleLateTick() {
  if (has_call()) {
    state_ = State::kAbandoned;
    SetDeadline(kNoDeadline);
    call_.Cancel();
    return true;
  }
  if (state_ == State::kWriting) {
    const std::optional<TimePoint> deadline = patience_.Extend(Now(), transport_.taken_bytes());
    if (deadline) {
      SetDeadline(*deadline);
      return false;
    }
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

// Called also by threads that do not drive the connection, while its call may be looked up.
void HttpConnection::OnClientGone(uint32_t events) {
  const TimePoint now = Now();
  if ((events & (kCut | kReset)) != 0 || ((events & kTick) != 0 && IsLate(now))) {
    return call_.Cancel();
  }
  if ((events & kHangup) != 0) call_.WhileRunning([&] { SetDeadline(now + kGoneTimeout); });
}

// ---- Reading ------------------------------------------------------------------------------------

void HttpConnection::BeginRequest(TimePoint now) {
  reader_.BeginRequest();
  early_error_.reset();
  route_ = Route();
  is_dashboard_file_ = false;
  arrival_ = {.at = now};
  ForgetArrival();
  const ServerConfig& config = *server_.parts().config;
  SetDeadline(now + (reader_.has_input() ? config.header_timeout : config.idle_timeout));
}

void HttpConnection::ReadRequest() {
  while (state_ == State::kReading) {
    if (reader_.has_input() && Parse()) continue;
    if (!readable_ || !ReadMore()) break;
  }
  if (state_ != State::kReading || reader_.has_input()) return;
  // The drain closed only idle connections. This one was being opened or answered then.
  if (server_.draining()) return Close();
  reader_.ReleaseInput();
}

// False: there is nothing to read now, or the connection is closed.
bool HttpConnection::ReadMore() {
  const bool is_first = !reader_.has_input();
  const absl::StatusOr<std::span<std::byte>> room = reader_.Room();
  if (!room.ok()) {
    Refuse(NoRoom(room.status()));
    return true;
  }
  const IoResult result = transport_.Read(*room);
  switch (result.state) {
    case IoState::kDone:
      break;
    case IoState::kDrained:
      readable_ = hung_up_;
      break;
    case IoState::kBlocked:
      readable_ = false;
      ForgetArrival();
      return false;
    case IoState::kEnd:
    case IoState::kFailed:
      if (!is_first) server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
      Close();
      return false;
  }
  reader_.Received(result.bytes);
  if (is_first) NoteArrival();
  return true;
}

// A request arrives when its socket has something to read, not when a thread has time to read it.
void HttpConnection::NoteArrival() {
  const TimePoint now = Now();
  arrival_.at = TakeArrival(now);
  arrival_.socket_wait = now - arrival_.at;
  SetDeadline(now + server_.parts().config->header_timeout);
}

// False: more has to be read.
bool HttpConnection::Parse() {
  HttpRequestReader::Parsed parsed = reader_.Parse();
  switch (parsed.step) {
    case HttpRequestReader::Step::kNeedsMore:
      return false;
    case HttpRequestReader::Step::kAgain:
      return true;
    case HttpRequestReader::Step::kHead:
      OnHead();
      return true;
    case HttpRequestReader::Step::kComplete:
      Answer();
      return true;
    case HttpRequestReader::Step::kRefused:
      Refuse(std::move(parsed.error));
      return true;
    case HttpRequestReader::Step::kNoRoom:
      Refuse(NoRoom(parsed.no_room));
      return true;
  }
  return false;
}

// Refuses what the head alone shows to be refused, where the body would cost something to read.
void HttpConnection::OnHead() {
  const RequestHead& head = reader_.head();
  route_ = FindRoute(head.path);
  const bool metrics_only = server_.role() == HttpRole::kMetricsOnly;
  if (metrics_only && !route_.is_probe() && route_.path != "/metrics") route_ = Route();
  is_dashboard_file_ = route_.is_dashboard_file();
  early_error_ = CheckHead(server_, head, route_);
  const bool complete = reader_.has_whole_body();
  if (!complete) SetDeadline(Now() + server_.parts().config->body_timeout);
  const bool is_too_large = head.content_length > body_bytes_max();
  const bool expects_continue = head.expectation == Expectation::kContinue;
  const bool is_costly = !complete && (head.chunked || expects_continue || !reader_.body_fits());
  if (early_error_ && (is_too_large || is_costly)) {
    return Refuse(*std::exchange(early_error_, std::nullopt));
  }
  if (is_too_large) {
    return Refuse({.code = 413,
                   .message = absl::StrCat("the body is larger than ", body_bytes_max(), " bytes"),
                   .reason = BadRequestReason::kLimit,
                   .allow = {}});
  }
  const bool wants_continue = !complete && expects_continue && !head.is_1_0;
  if (wants_continue && reader_.early_body_bytes() == 0 && !SendContinue()) return Close();
  if (const absl::Status room = reader_.BeginBody(body_bytes_max()); !room.ok()) {
    Refuse(NoRoom(room));
  }
}

// Of the body as it is sent, and of what it unpacks to.
uint64_t HttpConnection::body_bytes_max() const {
  const uint64_t most = server_.parts().config->body_bytes_max;
  if (route_.changes_rows()) return std::min<uint64_t>(most, kUpdateBytesMax);
  return route_.kind == RouteKind::kInfer ? most : std::min(most, kControlBytesMax);
}

bool HttpConnection::SendContinue() {
  iovec piece{.iov_base = const_cast<char*>(kContinue.data()), .iov_len = kContinue.size()};
  const IoResult result = transport_.Write({&piece, 1});
  // The send buffer is empty between two requests: only a broken connection takes less.
  return result.state == IoState::kDone && result.bytes == kContinue.size();
}

// ---- Answering ----------------------------------------------------------------------------------

void HttpConnection::Answer() {
  server_.CountRequest();
  const RequestHead& head = reader_.head();
  if (!head.keep_alive && after_ == After::kNextRequest) after_ = After::kClose;
  set_is_new(false);
  if (early_error_) return SendError(*std::exchange(early_error_, std::nullopt));
  std::span<char> body = reader_.Body();
  if (head.content_coding != Coding::kIdentity && !body.empty()) {
    const absl::Status status = call_.Unpack(head.content_coding, body_bytes_max(), &body);
    if (absl::IsOutOfRange(status) || absl::IsResourceExhausted(status)) return SendNoRoom(status);
    if (!status.ok()) return SendError(status, BadRequestReason::kContent);
    reader_.ReleaseBody();  // its tensors may need the room
  }
  switch (route_.kind) {
    case RouteKind::kInfer:
      UseTurn();  // only inferences show how long requests wait for lookups
      return StartInfer(body);
    case RouteKind::kLoad:
      if (const absl::Status status = CheckLoad(body); !status.ok()) {
        return SendError(status, BadRequestReason::kContent);
      }
      return StartControl(body);
    case RouteKind::kUnload:
    case RouteKind::kRefresh:
    case RouteKind::kSnapshot:
      return StartControl(body);
    case RouteKind::kUpdateRows:
      return StartUpdate(body);
    default:
      return SendApi(AnswerApi(server_.parts(), route_, head.query, body));
  }
}

void HttpConnection::StartInfer(std::span<char> body) {
  const std::optional<HttpCall::Refusal> refusal =
      call_.StartInfer({.route = route_,
                        .head = reader_.head(),
                        .body = body,
                        .lent_bytes = reader_.lent_bytes(),
                        .arrival = arrival_.at,
                        .socket_wait = arrival_.socket_wait});
  if (refusal) {
    switch (refusal->kind) {
      case HttpCall::Refusal::Kind::kBadRequest:
        return SendError(refusal->status, refusal->reason);
      case HttpCall::Refusal::Kind::kNoRoom:
        return SendNoRoom(refusal->status);
      case HttpCall::Refusal::Kind::kRefused:
        return SendRefusal(refusal->status);
    }
  }
  state_ = State::kCalling;
  SetDeadline(hung_up_ ? Now() + kGoneTimeout : kNoDeadline);
  run_pending_ = true;
}

void HttpConnection::StartControl(std::span<char> body) {
  if (const absl::Status posted = call_.StartControl(route_, body); !posted.ok()) {
    return SendError(posted);
  }
  state_ = State::kCalling;  // its end is told as an event, so not before this
  SetDeadline(kNoDeadline);
}

void HttpConnection::StartUpdate(std::span<char> body) {
  const absl::Status started = call_.StartUpdate({.route = route_,
                                                  .head = reader_.head(),
                                                  .body = body,
                                                  .lent_bytes = reader_.lent_bytes(),
                                                  .arrival = arrival_.at,
                                                  .socket_wait = arrival_.socket_wait});
  if (!started.ok()) return SendRefusal(started);
  state_ = State::kCalling;
  SetDeadline(kNoDeadline);
}

void HttpConnection::EndCall() {
  HPS_CHECK(has_call());
  const bool is_abandoned = state_ == State::kAbandoned;
  const absl::Status status = call_.TakeResult();
  state_ = State::kReading;
  if (is_abandoned) return Close();
  if (call_.is_control()) {
    return SendApi(status.ok() ? absl::StatusOr<Page>(JsonPage(call_.TakeAnswer())) : status);
  }
  status.ok() ? SendRows() : SendRefusal(status);
}

void HttpConnection::SendRows() {
  uint64_t json_bytes = 0;
  if (const absl::Status encoded = call_.Encode(&writer_, &json_bytes); !encoded.ok()) {
    return SendError(encoded, BadRequestReason::kContent);
  }
  if (json_bytes == 0) return Send(200, "application/json", {});
  std::array<char, 64> field;
  constexpr std::string_view kName = "Inference-Header-Content-Length: ";
  char* end = std::copy(kName.begin(), kName.end(), field.begin());
  end = std::to_chars(end, field.data() + field.size() - 2, json_bytes).ptr;
  *end++ = '\r';
  *end++ = '\n';
  Send(200, "application/octet-stream",
       std::string_view(field.data(), static_cast<size_t>(end - field.data())));
}

void HttpConnection::SendError(const absl::Status& status, std::optional<BadRequestReason> reason) {
  HttpError error = ErrorOf(status);
  error.reason = reason;
  if (error.code == 500) {
    LogError(absl::StrCat("http: a request failed: ", status.ToString()));
    error.message = "the server failed; its log has the reason";
  }
  SendError(std::move(error));
}

// An inference that the server did not take or did not answer.
void HttpConnection::SendRefusal(const absl::Status& status) {
  const bool is_load = (absl::IsResourceExhausted(status) && !IsDiskFull(status)) ||
                       absl::IsDeadlineExceeded(status);
  if (is_load) server_.NoteRefused();
  SendError(status);
}

void HttpConnection::SendNoRoom(const absl::Status& status) { SendError(NoRoom(status)); }

// A buffer is larger than the pool ever lends, or the pool has none now, which counts as load.
HttpError HttpConnection::NoRoom(const absl::Status& status) {
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

void HttpConnection::SendError(HttpError error) {
  if (error.reason) server_.parts().counters->CountBadRequest(*error.reason);
  if (!IsUtf8(error.message)) {
    std::replace_if(
        error.message.begin(), error.message.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  }
  JsonWriter json(&writer_.text());
  json.BeginObject();
  json.Member("error", error.message);
  json.EndObject();
  writer_.AddPiece(AsBytes(std::string_view(writer_.text())));
  ReleaseRequest();
  call_.End();
  std::string extra;
  if (error.code == 429) extra = "Retry-After: 1\r\n";
  if (error.code == 401) extra = "WWW-Authenticate: Bearer\r\n";
  if (error.code == 415) extra = "Accept-Encoding: gzip, deflate\r\n";
  if (!error.allow.empty()) extra = absl::StrCat("Allow: ", View(error.allow), "\r\n");
  Send(error.code, "application/json", extra);
}

// Refuses a request that was not read to its end, so that the connection has to close.
void HttpConnection::Refuse(HttpError error) {
  for (const int code : {400, 408, 413, 414, 431}) {
    if (error.code == code) server_.CountRequest();
  }
  after_ = After::kCloseUnread;
  SendError(std::move(error));
}

void HttpConnection::SendApi(absl::StatusOr<Page> answer) {
  if (!answer.ok()) {
    std::optional<BadRequestReason> reason;
    if (absl::IsNotFound(answer.status())) reason = BadRequestReason::kUnknown;
    if (absl::IsInvalidArgument(answer.status())) reason = BadRequestReason::kContent;
    return SendError(answer.status(), reason);
  }
  const std::string_view content_type = answer->content_type;
  writer_.AddPage(*std::move(answer));
  Send(200, content_type, {});
}

void HttpConnection::Send(int code, std::string_view content_type, std::string_view extra_fields) {
  if (after_ == After::kNextRequest && server_.draining()) after_ = After::kClose;
  ReleaseRequest();  // then the views of head and route are no longer valid
  const RequestHead& head = reader_.head();
  writer_.Begin({.code = code,
                 .content_type = content_type,
                 .policy_fields = is_dashboard_file_ ? kDashboardFields : kDataFields,
                 .extra_fields = extra_fields,
                 .accepted_coding = head.accepted_coding,
                 .refuses_identity = head.refuses_identity,
                 .has_body = head.method != Method::kHead,
                 .is_1_0 = head.is_1_0,
                 .close = after_ != After::kNextRequest});
  state_ = State::kWriting;
  SetDeadline(kNoDeadline);
}

// ---- Writing ------------------------------------------------------------------------------------

// False: the rest must wait.
bool HttpConnection::WriteOn() {
  switch (writer_.Write(transport_)) {
    case IoState::kDone:
      EndAnswer();
      return true;
    case IoState::kBlocked:
      if (!has_deadline()) {
        SetDeadline(patience_.Begin(Now(), server_.parts().config->write_timeout,
                                    transport_.taken_bytes()));
      }
      return false;
    default:
      Close();
      return true;
  }
}

// Releases what the request brought as soon as its response is there, so that a client that reads
// slowly holds none of it. What came behind the request stays if it is going to be read.
void HttpConnection::ReleaseRequest() {
  call_.ReleaseRequest();
  reader_.ReleaseBody();
  if (after_ == After::kClose && reader_.has_more()) after_ = After::kCloseUnread;
  if (after_ != After::kNextRequest || !reader_.has_more()) reader_.ReleaseInput();
}

void HttpConnection::EndRequest() {
  ReleaseRequest();
  early_error_.reset();
  writer_.Clear();
  call_.End();
}

// The last byte of the response is with the system.
void HttpConnection::EndAnswer() {
  const TimePoint now = Now();
  if (after_ == After::kNextRequest) {
    EndRequest();
    state_ = State::kReading;
    return BeginRequest(now);
  }
  const bool has_read_all = after_ == After::kClose && !readable_;
  EndRequest();
  transport_.EndSending();
  if (has_read_all) return Close();
  state_ = State::kLingering;
  SetDeadline(now + server_.parts().linger_timeout);
}

void HttpConnection::Linger() {
  std::array<std::byte, 4096> thrown_away;
  for (size_t i = 0; i < 256; ++i) {
    const IoResult result = transport_.Read(thrown_away);
    if (result.state == IoState::kBlocked) return;
    // The client's end may have been announced before; reading finds it again.
    if (result.state != IoState::kDone && result.state != IoState::kDrained) return Close();
  }
  Close();  // after a mebibyte: the client does not listen
}

}  // namespace hps::server
