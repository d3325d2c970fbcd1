#include "server/grpc/grpc_stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/text.h"
#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_status.h"

namespace hps::server {
namespace {

constexpr std::string_view kInferPath = "/inference.GRPCInferenceService/ModelInfer";
constexpr std::string_view kStreamPath = "/inference.GRPCInferenceService/ModelStreamInfer";
constexpr Duration kWatchPeriod = std::chrono::milliseconds(500);

TimePoint Now() { return RealClock().Now(); }

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

absl::Status DeadlineHasPassed() {
  return absl::DeadlineExceededError("the call's deadline has passed");
}

std::string_view MessageOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

}  // namespace

GrpcStream::GrpcStream(GrpcServer& server)
    : server_(server), request_reader_(server.pool()), call_(server, *this) {}

void GrpcStream::Begin(GrpcConnection& connection, int32_t stream_id) {
  connection_ = &connection;
  id = stream_id;
  state = State::kOpen;
  NoteArrival();
  phase_ = Phase::kFields;
  call_deadline_ = kNoDeadline;
  SetDeadline(connection.read_at() + server_.parts().config->header_timeout);
}

// A request arrived when its socket became readable, not when the server read it.
void GrpcStream::NoteArrival() {
  const TimePoint arrival = connection_->arrived_at();
  call_.SetArrival(arrival, connection_->read_at() - arrival);
}

void GrpcStream::End() {
  GiveBack();
  if (has_place_) server_.places(is_watch()).Return(connection_->place_count(is_watch()));
  has_place_ = false;
  connection_ = nullptr;
  deadline_ = kNoDeadline;
  unread_bytes_ = 0;
  is_stream_ = false;
  method_ = nullptr;
  metadata_.Clear();
  request_reader_.Clear();
  response.Clear();
}

void GrpcStream::SetDeadline(TimePoint deadline) {
  deadline_ = deadline;
  connection_->NoteDeadline(deadline);
}

// ---- Reading ------------------------------------------------------------------------------------

size_t GrpcStream::OnField(std::string_view name, std::string_view value) {
  if (phase_ != Phase::kFields) {
    metadata_.Count(name, value);
  } else {
    metadata_.Add(name, value, [this](std::string_view token) { return AdmitsToken(token); });
  }
  return metadata_.bytes();
}

void GrpcStream::OnFields() {
  if (phase_ != Phase::kFields) return;  // trailers
  server_.parts().counters->CountRequest(Protocol::kGrpc);
  phase_ = Phase::kReading;
  SetDeadline(kNoDeadline);
  using Timeout = CallMetadata::Timeout;
  if (metadata_.timeout_state() == Timeout::kValid)
    call_deadline_ = call_.arrival() + metadata_.timeout();
  if (metadata_.is_too_large()) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kLimit);
    return Finish(absl::ResourceExhaustedError(
        absl::StrCat("the call's metadata is larger than ", kCallFieldBytesMax, " bytes")));
  }
  if (!metadata_.is_post() || !metadata_.is_grpc()) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
    phase_ = Phase::kFinishing;
    SetDeadline(Now() + server_.parts().config->write_timeout);
    return connection_->session().SubmitHttpStatus(*this, metadata_.is_post() ? "415" : "405");
  }
  const std::string& path = metadata_.path();
  const bool is_inference = path == kStreamPath || path == kInferPath;
  method_ = is_inference ? nullptr : ControlMethods::Find(path);
  is_stream_ =
      method_ == nullptr ? path == kStreamPath : method_->kind == ControlMethods::Kind::kStream;
  absl::Status status = Admit();
  if (status.ok() && !is_inference && method_ == nullptr) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kUnknown);
    status = absl::UnimplementedError(absl::StrCat(
        "there is no method '", PrintableText(std::string_view(path).substr(0, 256)), "'"));
  } else if (status.ok() && metadata_.timeout_state() == Timeout::kInvalid) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
    status = absl::InvalidArgumentError(
        "grpc-timeout is invalid: send at most 8 digits and one of the units H, M, S, m, u, n");
  }
  if (!status.ok()) return Finish(status);
  Read();
}

// The path comes before all other fields, so it is known when the token comes.
bool GrpcStream::AdmitsToken(std::string_view authorization) const {
  const std::string& path = metadata_.path();
  const bool controls_models =
      path.ends_with("/RepositoryModelLoad") || path.ends_with("/RepositoryModelUnload");
  const bool needs_admin = controls_models && !server_.parts().config->admin_token_file.empty();
  return needs_admin ? server_.AdmitsControl(authorization) : server_.Admits(authorization);
}

absl::Status GrpcStream::Admit() {
  const bool is_health = method_ != nullptr && method_->is_health();
  if (!is_health) {
    const CallMetadata::Token token = metadata_.token();
    const bool is_admitted = token == CallMetadata::Token::kAbsent
                                 ? AdmitsToken({})
                                 : token == CallMetadata::Token::kAccepted;
    if (!is_admitted) {
      server_.parts().counters->CountAuthFailure();
      return absl::UnauthenticatedError(
          "exactly one bearer token is required: 'authorization: Bearer TOKEN'; loads and unloads "
          "may need the administrator's");
    }
  }
  if (!is_stream_ && !is_watch()) return absl::OkStatus();
  const absl::Status placed = server_.places(is_watch()).Take(connection_->place_count(is_watch()));
  has_place_ = placed.ok();
  if (!placed.ok()) server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  return placed;
}

// Waits for the next request of a stream, or for the only request.
void GrpcStream::Read() {
  const bool has_all = request_reader_.is_ended() && !request_reader_.has_more();
  if (is_stream_ && server_.draining() && !has_all) return Finish(ShuttingDown());
  phase_ = Phase::kReading;
  const ServerConfig& config = *server_.parts().config;
  const Duration timeout = is_stream_ ? config.stream_idle_timeout : config.body_timeout;
  SetDeadline(std::min(Now() + timeout, call_deadline_));
  if (unread_bytes_ > 0) connection_->session().Consume(*this, std::exchange(unread_bytes_, 0));
  TakeMessages();
}

void GrpcStream::OnData(std::span<const std::byte> bytes) {
  const bool reads = phase_ == Phase::kReading;
  if (phase_ == Phase::kFinishing) return connection_->session().Consume(*this, bytes.size());
  if (is_stream_ && reads && !request_reader_.has_more()) NoteArrival();
  if (const absl::Status added = request_reader_.Add(bytes); !added.ok()) {
    const absl::Status told = CountMessage(added);
    return reads ? Finish(told) : connection_->session().SubmitReset(*this);
  }
  if (!reads) {
    unread_bytes_ += bytes.size();  // Read lets the client send more
    return;
  }
  connection_->session().Consume(*this, bytes.size());
  TakeMessages();
}

void GrpcStream::OnEnd() {
  request_reader_.SetEnded();
  if (phase_ == Phase::kReading) TakeMessages();
}

// The limit also holds for the inflated message.
uint64_t GrpcStream::message_bytes_max() const {
  const uint64_t most = server_.parts().config->body_bytes_max;
  return method_ == nullptr ? most : std::min(most, kControlBytesMax);
}

void GrpcStream::TakeMessages() {
  const absl::StatusOr<RequestReader::Step> step =
      request_reader_.Next(message_bytes_max(), is_stream_);
  if (!step.ok()) return Finish(CountMessage(step.status()));
  if (*step == RequestReader::Step::kEnd) return Finish(absl::OkStatus());
  if (*step == RequestReader::Step::kMessage) Answer();
}

void GrpcStream::Answer() {
  phase_ = Phase::kCalling;
  SetDeadline(kNoDeadline);
  if (method_ != nullptr || connection_->MayBegin()) return AnswerNow();
  const TimePoint now = Now();
  if (call_deadline_ <= now) return RefuseLate();
  if (const absl::Status read = ReadHead(); absl::IsResourceExhausted(read)) {
    return SendError(CountMessage(read));
  }  // AnswerNow reports any other error
  call_.LimitTimeout(call_deadline_);
  const Duration wait_max = server_.parts().inference->TimeFor(call_.request.timeout);
  if (call_.arrival() + wait_max <= now) return RefuseLate();
  SetDeadline(call_.arrival() + wait_max);
  call_.BeginWait(now);
  connection_->calls().AwaitTurn(call_);
}

// Reads the model, the id and the time limit before the message is unpacked. Inflated bytes stay
// in request_reader_, because the request has views of them.
absl::Status GrpcStream::ReadHead() {
  call_.request.model = call_.request.id = {};
  HPS_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                       request_reader_.Head(metadata_.coding()));
  call_.ReadHead(bytes);
  return absl::OkStatus();
}

void GrpcStream::OnTurn() {
  if (phase_ != Phase::kCalling) return;  // the call has ended meanwhile
  SetDeadline(kNoDeadline);
  call_.EndWait(Now());
  AnswerNow();
}

// Called before the request is parsed.
void GrpcStream::RefuseLate() {
  server_.parts().counters->CountDeadlineExceeded(LateStage::kQueue);
  SendRefusal(
      absl::DeadlineExceededError("the call's deadline passed before its request was read"));
}

void GrpcStream::AnswerNow() {
  if (call_deadline_ <= Now() && method_ == nullptr) return RefuseLate();
  const absl::Status unpacked = request_reader_.Unpack(metadata_.coding(), message_bytes_max());
  if (absl::IsResourceExhausted(unpacked)) return SendError(CountMessage(unpacked));
  if (!unpacked.ok()) return Finish(CountMessage(unpacked));
  if (method_ != nullptr) return AnswerControl();
  StartInfer();
}

// ---- Answering ----------------------------------------------------------------------------------

void GrpcStream::AnswerControl() {
  const std::string_view message = AsText(request_reader_.message());
  if (method_->kind != ControlMethods::Kind::kSlow)
    return SendControl(server_.control().Call(*method_, message));
  if (const absl::Status posted = call_.StartControl(*method_, message); !posted.ok()) {
    SendError(posted);
  }
}

void GrpcStream::SendControl(ControlMethods::Answer answer) {
  if (answer.ok()) return SendText(*std::move(answer));
  server_.CountBadRequest(answer.status(), BadRequestReason::kSyntax);
  SendError(answer.status());
}

// Sends the current answer if it has changed. Keeps the request, to call the method again.
void GrpcStream::TellWatcher() {
  const ControlMethods::Answer now =
      server_.control().Call(*method_, AsText(request_reader_.message()));
  if (now.ok() && *now != response.text()) return SendText(*now);
  if (server_.draining()) return Finish(ShuttingDown());
  SetDeadline(std::min(Now() + kWatchPeriod, call_deadline_));
}

void GrpcStream::StartInfer() {
  const absl::Status started = call_.StartInfer({.message = request_reader_.message(),
                                                 .held_bytes = request_reader_.held_bytes(),
                                                 .deadline = call_deadline_,
                                                 .in_stream = is_stream_},
                                                &response);
  if (!started.ok()) return SendRefusal(started);
  connection_->calls().AddRunnable(call_);
}

void GrpcStream::OnCallEnded() {
  if (phase_ != Phase::kCalling) return;  // the call has ended meanwhile
  ControlMethods::Answer result = call_.TakeResult();
  if (method_ != nullptr) return SendControl(std::move(result));
  if (result.ok()) return SendRows();
  SendRefusal(result.status());
}

void GrpcStream::SendRows() {
  ReleaseMessage();
  response.SetMessage(call_.pieces(), BeginSending());
  connection_->session().SubmitAnswer(*this);
}

// Sends the error of an inference.
void GrpcStream::SendRefusal(const absl::Status& status) {
  if (absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status)) server_.NoteRefused();
  SendError(status);
}

// Ends the call, or sends the error as a message of the inference stream. Details of a failure
// within the server are only logged.
void GrpcStream::SendError(const absl::Status& error) {
  absl::Status status = error;
  if (absl::IsInternal(error) || absl::IsUnknown(error) || absl::IsDataLoss(error)) {
    LogError(absl::StrCat("grpc: call of ", metadata_.path(), " failed: ", error.ToString()));
    status = absl::Status(error.code(), "the server failed; its log has the reason");
  }
  if (!is_stream_ || method_ != nullptr) return Finish(status);
  // Without its head, the message does not name the model and the id.
  if (call_.request.model.empty() && call_.request.id.empty()) ReadHead().IgnoreError();
  std::string text =
      StreamErrorMessage(PrintableText(MessageOf(status)), call_.request.model, call_.request.id);
  response.Release();
  ReleaseRequest();
  SendText(std::move(text));
}

void GrpcStream::SendText(std::string text) {
  if (!is_watch()) ReleaseMessage();
  response.SetText(std::move(text), BeginSending());
  connection_->session().SubmitAnswer(*this);
}

ResponseWriter::After GrpcStream::BeginSending() {
  phase_ = is_stream_ || is_watch() ? Phase::kSending : Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  return phase_ == Phase::kFinishing ? ResponseWriter::After::kStatus
                                     : ResponseWriter::After::kMore;
}

void GrpcStream::Finish(const absl::Status& status) {
  phase_ = Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  response.SetStatus(status.code(), StatusMessageText(MessageOf(status)));
  GiveBack();
  connection_->session().SubmitEnd(*this);
}

void GrpcStream::OnNoMemory() {
  server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  if (phase_ == Phase::kFinishing || phase_ == Phase::kSending) {
    return connection_->session().SubmitReset(*this);
  }
  if (call_.execution == GrpcCall::Execution::kNone) GiveBack();
  phase_ = Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  // The text is short enough to be stored without an allocation.
  response.SetStatus(absl::StatusCode::kResourceExhausted, "out of memory");
  connection_->session().SubmitEnd(*this);
}

void GrpcStream::OnFlushed() {
  if (phase_ != Phase::kSending || response.unsent_bytes() > 0) return;
  response.Release();
  if (is_watch()) {
    phase_ = Phase::kWatching;
    return TellWatcher();
  }
  ReleaseRequest();
  if (request_reader_.has_more()) call_.SetArrival(Now(), Duration::zero());
  Read();
}

// ---- The end ------------------------------------------------------------------------------------

void GrpcStream::OnDrain() {
  if (phase_ == Phase::kWatching) return TellWatcher();
  if (phase_ == Phase::kReading && is_stream_) Finish(ShuttingDown());
}

void GrpcStream::OnTime(TimePoint now) {
  if (now < deadline_) return connection_->NoteDeadline(deadline_);
  ServerCounters& counters = *server_.parts().counters;
  switch (phase_) {
    case Phase::kCalling:
      if (connection_->calls().ForgetTurn(call_)) RefuseLate();
      return;
    case Phase::kWatching:
      return now < call_deadline_ ? TellWatcher() : Finish(DeadlineHasPassed());
    case Phase::kReading:
      if (now >= call_deadline_) return Finish(DeadlineHasPassed());
      counters.CountBadRequest(BadRequestReason::kTimeout);
      if (!is_stream_) return Finish(absl::CancelledError("the request did not come in time"));
      return Finish(
          absl::DeadlineExceededError("no request arrived within [server] stream_idle_timeout"));
    case Phase::kFields:
    case Phase::kSending:
    case Phase::kFinishing:
      counters.CountBadRequest(BadRequestReason::kTimeout);
      SetDeadline(now + server_.parts().config->write_timeout);
      return connection_->session().SubmitReset(*this);
  }
}

// Cancels the lookup if the client has gone. A lookup past its deadline ends by itself.
void GrpcStream::OnClosed(bool cut) {
  SetDeadline(kNoDeadline);
  if (call_.execution != GrpcCall::Execution::kRunning || method_ != nullptr) return;
  if (cut || Now() < call_deadline_) server_.parts().inference->Cancel(call_);
}

// Counts a message that could not be read, and returns the error for the client. gRPC has one code
// for a message that is too long and for a lack of memory. A message that is not framed or
// compressed as gRPC demands is INTERNAL.
absl::Status GrpcStream::CountMessage(const absl::Status& status) {
  ServerCounters& counters = *server_.parts().counters;
  if (absl::IsResourceExhausted(status)) {
    counters.CountRefused(RefusedReason::kCapacity);
    server_.NoteRefused();
    return status;
  }
  const bool is_too_long = absl::IsOutOfRange(status);
  counters.CountBadRequest(is_too_long ? BadRequestReason::kLimit : BadRequestReason::kProtocol);
  if (is_too_long) return absl::ResourceExhaustedError(status.message());
  return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
}

// Releases the call's share of the server's memory.
void GrpcStream::GiveBack() {
  response.Release();
  request_reader_.Release();
  ReleaseRequest();
}

// Called when the answer is there, so that a client that reads it slowly does not hold the memory
// of its request.
void GrpcStream::ReleaseMessage() {
  request_reader_.ReleaseMessage();
  call_.ReleaseRequest();
}

// The share of the capacity is released last, so that a request that is admitted in its place finds
// the memory.
void GrpcStream::ReleaseRequest() {
  ReleaseMessage();
  call_.Reset();
}

}  // namespace hps::server
