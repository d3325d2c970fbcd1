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

}  // namespace

GrpcStream::GrpcStream(GrpcServer& server) : server_(server), request_reader_(server.pool()) {}

GrpcStream::~GrpcStream() { Reset(); }

void GrpcStream::Begin(GrpcConnection& connection, int32_t id) {
  connection_ = &connection;
  id_ = id;
  NoteArrival();
  phase_ = Phase::kFields;
  call_deadline_ = kNoDeadline;
  SetDeadline(connection.read_at() + server_.parts().config->header_timeout);
}

// A request arrived when its socket became readable, not when the server read it.
void GrpcStream::NoteArrival() {
  arrival_ = connection_->arrived_at();
  socket_wait_ = connection_->read_at() - arrival_;
}

void GrpcStream::End() {
  GiveBack();
  if (has_place_) connection_->ReturnPlace(is_watch());
  has_place_ = false;
  connection_ = nullptr;
  deadline_ = kNoDeadline;
  unread_ = 0;
  is_stream_ = false;
  http = Http::kClosed;
  execution = Execution::kNone;
  in_output = false;
  control_method_ = nullptr;
  metadata_.Clear();
  request_reader_.Clear();
  response_.Clear();
}

void GrpcStream::SetDeadline(TimePoint deadline) {
  deadline_ = deadline;
  connection_->NoteDeadline(deadline);
}

// ---- Reading ------------------------------------------------------------------------------------

void GrpcStream::OnField(std::string_view name, std::string_view value) {
  if (phase_ != Phase::kFields) return metadata_.Count(name, value);
  metadata_.Add(name, value, [this](std::string_view token) { return server_.Admits(token); });
}

void GrpcStream::OnFields() {
  if (phase_ != Phase::kFields) return;  // trailers
  server_.parts().counters->CountRequest(Protocol::kGrpc);
  phase_ = Phase::kReading;
  SetDeadline(kNoDeadline);
  using Timeout = CallMetadata::Timeout;
  if (metadata_.timeout_state() == Timeout::kValid) call_deadline_ = arrival_ + metadata_.timeout();
  if (metadata_.is_too_large()) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kLimit);
    return Finish(absl::ResourceExhaustedError(
        absl::StrCat("the call's metadata is larger than ", kCallFieldBytesMax, " bytes")));
  }
  if (!metadata_.is_post() || !metadata_.is_grpc()) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
    phase_ = Phase::kFinishing;
    SetDeadline(Now() + server_.parts().config->write_timeout);
    return connection_->SubmitHttpStatus(*this, metadata_.is_post() ? "415" : "405");
  }
  const std::string& path = metadata_.path();
  is_stream_ = path == kStreamPath;
  const bool is_inference = is_stream_ || path == kInferPath;
  control_method_ = is_inference ? nullptr : ControlMethods::Find(path);
  absl::Status status = Admit();
  if (status.ok() && !is_inference && control_method_ == nullptr) {
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

absl::Status GrpcStream::Admit() {
  const bool is_health = control_method_ != nullptr && control_method_->is_health;
  if (!is_health) {
    const CallMetadata::Token token = metadata_.token();
    const bool is_admitted = token == CallMetadata::Token::kAbsent
                                 ? server_.Admits({})
                                 : token == CallMetadata::Token::kAccepted;
    if (!is_admitted) {
      server_.parts().counters->CountAuthFailure();
      return absl::UnauthenticatedError(
          "exactly one bearer token is required: 'authorization: Bearer TOKEN'");
    }
  }
  if (!is_stream_ && !is_watch()) return absl::OkStatus();
  const absl::Status placed = connection_->TakePlace(is_watch());
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
  if (unread_ > 0) connection_->Consume(*this, std::exchange(unread_, 0));
  TakeMessages();
}

void GrpcStream::OnData(std::span<const std::byte> bytes) {
  const bool reads = phase_ == Phase::kReading;
  if (phase_ == Phase::kFinishing) return connection_->Consume(*this, bytes.size());
  if (is_stream_ && reads && !request_reader_.has_more()) NoteArrival();
  if (const absl::Status added = request_reader_.Add(bytes); !added.ok()) {
    const absl::Status told = CountMessage(added, BadRequestReason::kProtocol);
    return reads ? Finish(told) : connection_->ResetStream(*this);
  }
  if (!reads) {
    unread_ += bytes.size();  // its turn comes, and then there is room for more
    return;
  }
  connection_->Consume(*this, bytes.size());
  TakeMessages();
}

void GrpcStream::OnEnd() {
  request_reader_.SetEnded();
  if (phase_ == Phase::kReading) TakeMessages();
}

// The limit also holds for the inflated message.
uint64_t GrpcStream::message_bytes_max() const {
  const uint64_t most = server_.parts().config->body_bytes_max;
  return control_method_ == nullptr ? most : std::min(most, kControlBytesMax);
}

void GrpcStream::TakeMessages() {
  const absl::StatusOr<RequestReader::Step> step =
      request_reader_.Next(message_bytes_max(), is_stream_);
  if (!step.ok()) return Finish(CountMessage(step.status(), BadRequestReason::kProtocol));
  if (*step == RequestReader::Step::kEnd) return Finish(absl::OkStatus());
  if (*step == RequestReader::Step::kMessage) Answer();
}

void GrpcStream::Answer() {
  phase_ = Phase::kCalling;
  SetDeadline(kNoDeadline);
  if (control_method_ != nullptr || connection_->MayBegin()) return AnswerNow();
  left_at_ = Now();
  if (call_deadline_ <= left_at_) return RefuseLate();
  if (const absl::Status read = ReadHead(); absl::IsResourceExhausted(read)) {
    return SendError(CountMessage(read, BadRequestReason::kSyntax));
  }  // any other error is told in its turn
  SetTimeout();
  const TimePoint until = arrival_ + server_.parts().inference->TimeFor(request.timeout);
  if (until <= left_at_) return RefuseLate();
  SetDeadline(until);
  connection_->AwaitTurn(*this);
}

// Who asks, and for how long, before the rest of the message has its turn. What is unpacked stays
// where it is: the request's views are of it.
absl::Status GrpcStream::ReadHead() {
  request.model = request.id = {};
  HPS_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                       request_reader_.Head(metadata_.coding()));
  request_codec_.ParseHead(bytes, &request);
  return absl::OkStatus();
}

// Another thread may drive the connection, so the turn is passed to it as an event.
bool GrpcStream::TakeTurn(const Backlog::Turn& /*turn*/) { return connection_->OnTurn(*this); }

void GrpcStream::OnTurn() {
  if (phase_ != Phase::kCalling) return;  // it was ended meanwhile
  SetDeadline(kNoDeadline);
  socket_wait_ += Now() - left_at_;
  AnswerNow();
}

// Called before the request is parsed.
void GrpcStream::RefuseLate() {
  server_.parts().counters->CountDeadlineExceeded(LateStage::kQueue);
  SendRefusal(
      absl::DeadlineExceededError("the call's deadline passed before its request was read"));
}

void GrpcStream::AnswerNow() {
  if (call_deadline_ <= Now() && control_method_ == nullptr) return RefuseLate();
  const absl::Status unpacked = request_reader_.Unpack(metadata_.coding(), message_bytes_max());
  if (!unpacked.ok()) return SendError(CountMessage(unpacked, BadRequestReason::kSyntax));
  if (control_method_ != nullptr) return AnswerControl();
  const absl::Status started = StartInference();
  if (!started.ok()) SendRefusal(started);
}

// ---- Answering ----------------------------------------------------------------------------------

void GrpcStream::AnswerControl() {
  if (!control_method_->is_slow)
    return SendControl(server_.control().Call(*control_method_, AsText(request_reader_.message())));
  execution = Execution::kRunning;
  const absl::Status posted = server_.PostSlow(this);
  if (posted.ok()) return;
  execution = Execution::kNone;
  SendError(posted);
}

void GrpcStream::Run() {
  try {
    result_ = server_.control().Call(*control_method_, AsText(request_reader_.message()));
  } catch (const std::bad_alloc&) {
    result_ = absl::ResourceExhaustedError("out of memory; try again later");
  }
  connection_->OnCallEnded(*this);
}

void GrpcStream::SendControl(ControlMethods::Answer answer) {
  if (answer.ok()) return SendText(*std::move(answer));
  CountBadRequest(answer.status(), BadRequestReason::kSyntax);
  SendError(answer.status());
}

// Keeps the request: the method is called again later.
void GrpcStream::TellWatcher() {
  const ControlMethods::Answer now =
      server_.control().Call(*control_method_, AsText(request_reader_.message()));
  if (now.ok() && *now != response_.text()) return SendText(*now);
  if (server_.draining()) return Finish(ShuttingDown());
  SetDeadline(std::min(Now() + kWatchPeriod, call_deadline_));
}

absl::Status GrpcStream::StartInference() {
  request.model = request.id = {};  // ReadHead's, of memory that may be another's now
  request.timeout = Duration::zero();
  request.protocol = Protocol::kGrpc;
  request.arrival = arrival_;
  request.socket_wait = socket_wait_;
  if (const absl::Status parsed = request_codec_.Parse(
          request_reader_.message(), server_.parts().config->body_bytes_max, &request);
      !parsed.ok()) {
    CountBadRequest(parsed, BadRequestReason::kSyntax);
    return parsed;
  }
  request.body_bytes = request_reader_.held_bytes() + request_codec_.unpacked_bytes();
  SetTimeout();
  HPS_RETURN_IF_ERROR(server_.parts().inference->Prepare(*this));
  const size_t answer_bytes = response_codec_.Plan(
      *this,
      {.in_stream = is_stream_, .final_mark = is_stream_ && request_codec_.wants_final_mark()});
  absl::StatusOr<BufferPool::Lease> rows =
      server_.pool().Acquire(answer_bytes, BufferPool::Use::kAnswer);
  if (!rows.ok()) {
    server_.parts().counters->CountRefused(RefusedReason::kCapacity);
    return rows.status();
  }
  response_.HoldRows(*std::move(rows));
  response_codec_.Place(response_.rows().data(), this);
  connection_->AddRunnable(*this);
  return absl::OkStatus();
}

// The earlier one of the parameter and gRPC's own deadline, as a time from the arrival.
void GrpcStream::SetTimeout() {
  if (call_deadline_ == kNoDeadline) return;
  const Duration timeout = call_deadline_ - arrival_;
  if (request.timeout == Duration::zero() || timeout < request.timeout) request.timeout = timeout;
}

// The buffer as the pool lends it; names and shapes lie in it before the rows.
uint64_t GrpcStream::AnswerBytes() const {
  constexpr uint64_t kBesideTensorBytes = 128;
  uint64_t bytes = kBesideTensorBytes + request.model.size() + request.id.size();
  for (const OutputTensor& output : outputs)
    bytes += output.byte_count + output.name.size() + kBesideTensorBytes;
  return BufferPool::LentFor(bytes);
}

void GrpcStream::OnDone(const absl::Status& status) {
  if (status.ok()) {
    result_ = std::string();
  } else {
    result_ = status;
  }
  connection_->OnCallEnded(*this);
}

void GrpcStream::OnCallEnded() {
  if (phase_ != Phase::kCalling) return;  // it was ended meanwhile
  if (control_method_ != nullptr) return SendControl(std::move(result_));
  if (result_.ok()) return SendRows();
  SendRefusal(std::exchange(result_, std::string()).status());
}

void GrpcStream::SendRows() {
  ReleaseMessage();
  response_.SetMessage(response_codec_.pieces(), BeginSending());
  connection_->SubmitAnswer(*this);
}

// Of an inference.
void GrpcStream::SendRefusal(const absl::Status& status) {
  if (absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status)) server_.NoteRefused();
  SendError(status);
}

// A stream goes on: the message says which request failed and why. What failed inside is for the
// log.
void GrpcStream::SendError(const absl::Status& error) {
  absl::Status status = error;
  if (absl::IsInternal(error) || absl::IsUnknown(error) || absl::IsDataLoss(error)) {
    LogError(absl::StrCat("grpc: a call failed: ", error.ToString()));
    status = absl::Status(error.code(), "the server failed; its log has the reason");
  }
  if (!is_stream_) return Finish(status);
  // Where that fails the message says less.
  if (request.model.empty() && request.id.empty()) ReadHead().IgnoreError();
  std::string text = StreamErrorMessage(
      PrintableText(std::string_view(status.message().data(), status.message().size())),
      request.model, request.id);
  ReleaseAnswer();
  ReleaseRequest();
  SendText(std::move(text));
}

void GrpcStream::SendText(std::string text) {
  if (!is_watch()) ReleaseMessage();
  response_.SetText(std::move(text), BeginSending());
  connection_->SubmitAnswer(*this);
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
  response_.SetStatus(status.code(), StatusMessageText(std::string_view(status.message().data(),
                                                                        status.message().size())));
  GiveBack();
  connection_->SubmitEnd(*this);
}

void GrpcStream::OnNoMemory() {
  server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  if (phase_ == Phase::kFinishing || phase_ == Phase::kSending) {
    return connection_->ResetStream(*this);
  }
  if (execution == Execution::kNone) GiveBack();
  phase_ = Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  // The text is short enough to be stored without an allocation.
  response_.SetStatus(absl::StatusCode::kResourceExhausted, "no memory");
  connection_->SubmitEnd(*this);
}

void GrpcStream::OnFlushed() {
  if (phase_ != Phase::kSending || response_.unsent_bytes() > 0) return;
  ReleaseAnswer();
  if (is_watch()) {
    phase_ = Phase::kWatching;
    return TellWatcher();
  }
  ReleaseRequest();
  if (request_reader_.has_more()) {
    arrival_ = Now();
    socket_wait_ = Duration::zero();
  }
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
      if (connection_->ForgetTurn(*this)) RefuseLate();
      return;
    case Phase::kWatching:
      if (now < call_deadline_) return TellWatcher();
      return Finish(absl::DeadlineExceededError("the call's deadline has passed"));
    case Phase::kReading:
      if (now >= call_deadline_)
        return Finish(absl::DeadlineExceededError("the call's deadline has passed"));
      counters.CountBadRequest(BadRequestReason::kTimeout);
      if (!is_stream_) return Finish(absl::CancelledError("the request did not come in time"));
      return Finish(absl::DeadlineExceededError(
          "no request came for longer than [server] stream_idle_timeout"));
    case Phase::kFields:
    case Phase::kSending:
    case Phase::kFinishing:
      counters.CountBadRequest(BadRequestReason::kTimeout);
      SetDeadline(now + server_.parts().config->write_timeout);
      return connection_->ResetStream(*this);
  }
}

// Cancels the lookup if the client has gone. A lookup past its deadline ends by itself.
void GrpcStream::OnClosed(bool cut) {
  SetDeadline(kNoDeadline);
  if (execution != Execution::kRunning || control_method_ != nullptr) return;
  if (cut || Now() < call_deadline_) server_.parts().inference->Cancel(*this);
}

// Of a message that could not be read: counts it, and gives what its client is told. To gRPC one
// that is too long is no other than one that there is no room for now.
absl::Status GrpcStream::CountMessage(const absl::Status& status, BadRequestReason invalid) {
  if (absl::IsResourceExhausted(status)) {
    server_.parts().counters->CountRefused(RefusedReason::kCapacity);
    server_.NoteRefused();
    return status;
  }
  CountBadRequest(status, invalid);
  return absl::IsOutOfRange(status) ? absl::ResourceExhaustedError(status.message()) : status;
}

// `invalid`: the reason where it is INVALID_ARGUMENT.
void GrpcStream::CountBadRequest(const absl::Status& status, BadRequestReason invalid) {
  ServerCounters& counters = *server_.parts().counters;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return counters.CountBadRequest(invalid);
    case absl::StatusCode::kOutOfRange:
      return counters.CountBadRequest(BadRequestReason::kLimit);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return counters.CountBadRequest(BadRequestReason::kUnknown);
    default:
      return;
  }
}

// Releases all memory of the call that belongs to the server.
void GrpcStream::GiveBack() {
  ReleaseAnswer();
  request_reader_.Release();
  ReleaseRequest();
}

// The message that is answered, when its answer is there: a client that takes it slowly holds none
// of its request.
void GrpcStream::ReleaseMessage() {
  request_reader_.ReleaseMessage();
  request_codec_.Trim();
}

// The share of the capacity comes last: who is admitted in its place finds the memory there.
void GrpcStream::ReleaseRequest() {
  ReleaseMessage();
  Reset();
}

void GrpcStream::ReleaseAnswer() { response_.Release(); }

}  // namespace hps::server
