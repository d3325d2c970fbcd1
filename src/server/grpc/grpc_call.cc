#include "server/grpc/grpc_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "base/text.h"
#include "server/grpc/message_inflater.h"

namespace hps::server {
namespace {

constexpr std::string_view kInferPath = "/inference.GRPCInferenceService/ModelInfer";
constexpr std::string_view kStreamPath = "/inference.GRPCInferenceService/ModelStreamInfer";
// More might not fit into the trailers that a client takes.
constexpr size_t kErrorBytesMax = 1024;
// Of a message's copy that stays for the next one.
constexpr size_t kKeptBytesMax = size_t{1} << 20;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()),
          std::string(status.message().substr(0, kErrorBytesMax))};
}

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

void DropReference(void* buffer) { static_cast<ResponseBuffer*>(buffer)->DropReference(); }

std::string_view TextOf(const grpc::Slice& slice) {
  const void* const begin = slice.begin();
  return {static_cast<const char*>(begin), slice.size()};
}

}  // namespace

GrpcCall::GrpcCall(GrpcCallHost& host, grpc::ServerCompletionQueue& queue)
    : host_(host), queue_(queue) {}

GrpcCall::~GrpcCall() {
  ReleaseAnswer();
  Reset();
}

void GrpcCall::Request(grpc::AsyncGenericService& service) {
  MutexLock lock(mutex_);
  context_.emplace();
  stream_.emplace(&*context_);
  pending_ = 1;
  service.RequestCall(&*context_, &*stream_, &queue_, &queue_, &accepted_tag_);
}

void GrpcCall::OnEvent(Event event, bool ok) {
  bool ended = false;
  bool was_finishing = false;
  {
    MutexLock lock(mutex_);
    --pending_;
    was_finishing = phase_ == Phase::kFinishing;
    ended = was_finishing && pending_ == 0;
    // From now on the call works, and nobody ends it from outside.
    if (!was_finishing && event != Event::kAccepted) phase_ = Phase::kWorking;
  }
  if (ended) return Recycle();
  if (was_finishing) return;
  switch (event) {
    case Event::kAccepted:
      return ok ? OnAccepted() : host_.OnNotAccepted();
    case Event::kRead:
      return OnRead(ok);
    case Event::kWritten:
      return OnWritten(ok);
    case Event::kFinished:
      return;
  }
}

void GrpcCall::OnAccepted() {
  arrival_ = RealClock().Now();
  host_.parts().counters->CountRequest(/*http=*/false);
  const std::string& path = context_->method();
  is_stream_ = path == kStreamPath;
  const bool is_inference = is_stream_ || path == kInferPath;
  control_method_ = is_inference ? nullptr : ControlMethods::Find(path);
  is_refused_ = !host_.OnAccepted(*this);
  absl::Status status = Admit();
  if (status.ok() && !is_inference && control_method_ == nullptr) {
    host_.parts().counters->CountBadRequest(BadRequestReason::kUnknown);
    status = absl::UnimplementedError(
        absl::StrCat("there is no method '", PrintableText(path.substr(0, 256)), "'"));
  }
  if (!status.ok()) return Finish(status);
  Read();
}

absl::Status GrpcCall::Admit() {
  if (is_refused_) {
    host_.parts().counters->CountRefused(RefusedReason::kCapacity);
    return absl::ResourceExhaustedError("the server is at its capacity (calls); try again later");
  }
  if (control_method_ != nullptr && control_method_->is_health) return absl::OkStatus();
  const std::shared_ptr<const TokenGuard> token = host_.token();
  if (!token->has_token()) return absl::OkStatus();
  const auto& metadata = context_->client_metadata();
  const auto found = metadata.find("authorization");
  if (found != metadata.end() &&
      token->Admits(std::string_view(found->second.data(), found->second.size()))) {
    return absl::OkStatus();
  }
  host_.parts().counters->CountAuthFailure();
  return absl::UnauthenticatedError("a bearer token is needed: 'authorization: Bearer TOKEN'");
}

void GrpcCall::OnRead(bool ok) {
  if (!ok) {
    // The client sends no more: the end of a stream, or a call without a request.
    return Finish(is_stream_ ? absl::OkStatus()
                             : absl::InvalidArgumentError("the call has no request message"));
  }
  if (control_method_ != nullptr) {
    if (!control_method_->is_slow) return AnswerControl();
    const absl::Status posted = host_.slow_work().Post(&slow_task_);
    if (!posted.ok()) Finish(posted);
    return;
  }
  if (is_stream_) arrival_ = RealClock().Now();
  const absl::Status started = StartInference();
  if (!started.ok()) OnDone(started);
}

void GrpcCall::AnswerControl() {
  const absl::StatusOr<std::string_view> asked = message();
  ControlMethods::Answer answer =
      asked.ok() ? host_.control().Call(*control_method_, *asked) : asked.status();
  if (!answer.ok()) {
    CountBadRequest(answer.status());
    return Finish(answer.status());
  }
  const grpc::Slice slice(*answer);
  Send(grpc::ByteBuffer(&slice, 1));
}

absl::Status GrpcCall::StartInference() {
  request.protocol = Protocol::kGrpc;
  request.arrival = arrival_;
  const absl::StatusOr<std::string_view> bytes = message();
  const absl::Status parsed =
      bytes.ok() ? request_codec_.Parse(AsBytes(*bytes), &request) : bytes.status();
  if (!parsed.ok()) {
    CountBadRequest(parsed);
    return parsed;
  }
  request.body_bytes = bytes->size();
  HPS_RETURN_IF_ERROR(SetTimeout());
  HPS_RETURN_IF_ERROR(host_.parts().inference->Prepare(*this));
  const size_t answer_bytes = response_codec_.Plan(
      *this,
      {.in_stream = is_stream_, .final_mark = is_stream_ && request_codec_.wants_final_mark()});
  answer_ = host_.buffers().Lend(answer_bytes);
  if (answer_ == nullptr) {
    host_.parts().counters->CountRefused(RefusedReason::kCapacity);
    return absl::ResourceExhaustedError("there is no memory for the answer; try again later");
  }
  response_codec_.Place(answer_->data(), this);
  host_.parts().inference->Run(*this);
  return absl::OkStatus();
}

// The earlier one of the parameter and gRPC's own deadline, as a time from the arrival.
absl::Status GrpcCall::SetTimeout() {
  const gpr_timespec deadline = context_->raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return absl::OkStatus();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  const Duration rest = std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
  if (rest <= Duration::zero()) {
    host_.parts().counters->CountDeadlineExceeded(LateStage::kQueue);
    return absl::DeadlineExceededError("the call's deadline had passed when its request was there");
  }
  const Duration timeout = rest + (RealClock().Now() - arrival_);
  if (request.timeout == Duration::zero() || timeout < request.timeout) request.timeout = timeout;
  return absl::OkStatus();
}

void GrpcCall::OnDone(const absl::Status& status) {
  if (status.ok()) return AnswerInference();
  if (!is_stream_) return Finish(status);
  // A stream goes on: the message says which request failed and why.
  const std::string error = StreamErrorMessage(
      PrintableText(std::string_view(status.message().data(), status.message().size())),
      request.model, request.id);
  const grpc::Slice slice(error);
  Send(grpc::ByteBuffer(&slice, 1));
}

void GrpcCall::AnswerInference() {
  const auto pieces = response_codec_.pieces();
  // Each piece has a reference of its own; the first takes over this call's.
  ResponseBuffer* const buffer = std::exchange(answer_, nullptr);
  buffer->AddReferences(pieces.size() - 1);
  slices_.clear();
  for (const std::span<std::byte> piece : pieces) {
    slices_.emplace_back(piece.data(), piece.size(), DropReference, buffer);
  }
  const grpc::ByteBuffer bytes(slices_.data(), slices_.size());
  slices_.clear();
  Send(bytes);
}

void GrpcCall::OnWritten(bool ok) {
  ReleaseAnswer();
  Reset();
  // Not written: the client has gone, and Finish only takes note of it.
  if (!ok) return Finish(absl::CancelledError("the client has gone"));
  Read();
}

void GrpcCall::Read() {
  incoming_.Clear();
  incoming_slice_ = grpc::Slice();
  TrimMessage();  // a stream may wait for long
  MutexLock lock(mutex_);
  // Asked under the lock: whoever begins the drain after this finds a stream that waits.
  if (is_stream_ && host_.is_draining()) return FinishLocked(ShuttingDown());
  phase_ = Phase::kReading;
  phase_since_ = RealClock().Now();
  ++pending_;
  stream_->Read(&incoming_, &read_tag_);
}

void GrpcCall::Send(const grpc::ByteBuffer& bytes) {
  MutexLock lock(mutex_);
  phase_since_ = RealClock().Now();
  ++pending_;
  if (is_stream_) {
    phase_ = Phase::kSending;
    stream_->Write(bytes, &written_tag_);
  } else {
    phase_ = Phase::kFinishing;
    stream_->WriteAndFinish(bytes, grpc::WriteOptions(), grpc::Status::OK, &finished_tag_);
  }
}

void GrpcCall::Finish(const absl::Status& status) {
  MutexLock lock(mutex_);
  FinishLocked(status);
}

void GrpcCall::FinishLocked(const absl::Status& status) {
  phase_ = Phase::kFinishing;
  phase_since_ = RealClock().Now();
  ++pending_;
  stream_->Finish(ToGrpc(status), &finished_tag_);
}

void GrpcCall::CancelIfStuck(TimePoint now) {
  const ServerConfig& config = *host_.parts().config;
  MutexLock lock(mutex_);
  const bool first_read = phase_ == Phase::kReading && !is_stream_;
  const bool sending = phase_ == Phase::kSending || phase_ == Phase::kFinishing;
  if ((first_read && now - phase_since_ > config.body_timeout) ||
      (sending && now - phase_since_ > config.write_timeout)) {
    host_.parts().counters->CountBadRequest(BadRequestReason::kTimeout);
    phase_since_ = now;
    context_->TryCancel();
  }
}

void GrpcCall::EndIfIdleStream() {
  MutexLock lock(mutex_);
  if (phase_ == Phase::kReading && is_stream_) {
    FinishLocked(ShuttingDown());
  }
}

absl::StatusOr<std::string_view> GrpcCall::message() {
  if (incoming_.TrySingleSlice(&incoming_slice_).ok()) return TextOf(incoming_slice_);
  incoming_copy_.clear();
  if (!incoming_.Dump(&slices_).ok()) slices_.clear();
  absl::Status status;
  const grpc_compression_algorithm algorithm = CompressionOf(incoming_);
  if (algorithm == GRPC_COMPRESS_NONE) {
    incoming_copy_.reserve(incoming_.Length());
    for (const grpc::Slice& slice : slices_) incoming_copy_ += TextOf(slice);
  } else {
    status =
        InflateMessage(algorithm, slices_, host_.parts().config->body_bytes_max, &incoming_copy_);
  }
  slices_.clear();
  if (absl::IsResourceExhausted(status))
    host_.parts().counters->CountBadRequest(BadRequestReason::kLimit);
  if (!status.ok()) return status;
  return incoming_copy_;
}

void GrpcCall::TrimMessage() {
  request_codec_.Trim();
  if (incoming_copy_.capacity() > kKeptBytesMax) std::string().swap(incoming_copy_);
}

void GrpcCall::CountBadRequest(const absl::Status& status) {
  ServerCounters& counters = *host_.parts().counters;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return counters.CountBadRequest(BadRequestReason::kSyntax);
    case absl::StatusCode::kOutOfRange:
      return counters.CountBadRequest(BadRequestReason::kLimit);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return counters.CountBadRequest(BadRequestReason::kUnknown);
    default:
      return;
  }
}

void GrpcCall::ReleaseAnswer() {
  if (ResponseBuffer* const buffer = std::exchange(answer_, nullptr)) buffer->DropReference();
}

void GrpcCall::Recycle() {
  ReleaseAnswer();
  Reset();
  incoming_.Clear();
  incoming_slice_ = grpc::Slice();
  TrimMessage();
  {
    MutexLock lock(mutex_);
    stream_.reset();
    context_.reset();
    phase_ = Phase::kFree;
  }
  host_.OnEnded(*this);
}

}  // namespace hps::server
