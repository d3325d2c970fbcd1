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
  context_->AsyncNotifyWhenDone(&done_tag_);
  stream_.emplace(&*context_);
  is_gone_ = is_running_ = is_done_ = false;
  pending_ = 1;
  service.RequestCall(&*context_, &*stream_, &queue_, &queue_, &accepted_tag_);
}

void GrpcCall::OnEvent(Event event, bool ok) {
  try {
    if (event == Event::kDone) OnGone();
    HandleEvent(event, ok);
  } catch (const std::bad_alloc&) {
    OnNoMemory();
  }
}

// An allocation failed on the way of a request that nobody else has now. The text is short enough
// to need no memory.
void GrpcCall::OnNoMemory() {
  host_.parts().counters->CountRefused(RefusedReason::kCapacity);
  MutexLock lock(mutex_);
  FinishWith(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory"));
}

void GrpcCall::HandleEvent(Event event, bool ok) {
  bool ended = false;
  bool was_finishing = false;
  {
    MutexLock lock(mutex_);
    if (event == Event::kWritten && is_giving_up_) {
      written_meanwhile_ = ok;
      return;
    }
    if (event == Event::kAccepted && ok) ++pending_;  // kDone
    --pending_;
    was_finishing = phase_ == Phase::kFinishing;
    ended = was_finishing && pending_ == 0;
    // From now on the call works, and nobody ends it from outside.
    if (!was_finishing && event != Event::kAccepted && event != Event::kDone)
      phase_ = Phase::kWorking;
    is_done_ |= event == Event::kDone;
    if (is_done_ && phase_ == Phase::kWatching)
      return FinishLocked(absl::CancelledError("the client has gone"));
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
    case Event::kDone:
      return;
  }
}

// Gives the look-up up of a client that has gone. One that is past its deadline has it as its own,
// and ends by it.
void GrpcCall::OnGone() {
  const gpr_timespec deadline = context_->raw_deadline();
  const bool is_late = gpr_time_cmp(deadline, gpr_now(deadline.clock_type)) <= 0;
  {
    MutexLock lock(mutex_);
    is_gone_ = context_->IsCancelled() && !is_late;
    is_giving_up_ = is_gone_ && is_running_;
    if (!is_giving_up_) return;
  }
  host_.parts().inference->Cancel(*this);
  std::optional<bool> written;
  {
    MutexLock lock(mutex_);
    is_giving_up_ = false;
    written = std::exchange(written_meanwhile_, std::nullopt);
  }
  if (written.has_value()) HandleEvent(Event::kWritten, *written);
}

bool GrpcCall::BeginRunning() {
  MutexLock lock(mutex_);
  is_running_ = !is_gone_;
  return is_running_;
}

void GrpcCall::OnAccepted() {
  arrival_ = RealClock().Now();
  host_.parts().counters->CountRequest(/*http=*/false);
  const std::string& path = context_->method();
  is_stream_ = path == kStreamPath;
  const bool is_inference = is_stream_ || path == kInferPath;
  control_method_ = is_inference ? nullptr : ControlMethods::Find(path);
  is_stream_ |= is_watch();
  is_refused_ = !host_.OnAccepted();
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
  const bool is_health = control_method_ != nullptr && control_method_->is_health;
  if (!is_health) HPS_RETURN_IF_ERROR(CheckToken());
  if (!is_stream_) return absl::OkStatus();
  const absl::Status placed = host_.streams().Take(context_->peer());
  if (placed.ok()) {
    stream_peer_ = context_->peer();
  } else {
    host_.parts().counters->CountRefused(RefusedReason::kCapacity);
  }
  return placed;
}

absl::Status GrpcCall::CheckToken() {
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
  told_ = *std::move(answer);
  Send(grpc::ByteBuffer(&slice, 1));
}

// Waits for something to tell. Its request stays where it is.
void GrpcCall::Watch() {
  MutexLock lock(mutex_);
  if (is_done_) return FinishLocked(absl::CancelledError("the client has gone"));
  // Asked under the lock: whoever begins the drain after this finds a call that watches.
  if (host_.is_draining()) return FinishLocked(ShuttingDown());
  phase_ = Phase::kWatching;
}

void GrpcCall::TellWatcher() {
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kWatching) return;
    phase_ = Phase::kWorking;
  }
  std::string answer;
  if (!HasNews(&answer)) return Watch();
  const grpc::Slice slice(answer);
  told_ = std::move(answer);
  Send(grpc::ByteBuffer(&slice, 1));
}

bool GrpcCall::HasNews(std::string* answer) {
  try {
    const absl::StatusOr<std::string_view> asked = message();
    ControlMethods::Answer now =
        asked.ok() ? host_.control().Call(*control_method_, *asked) : asked.status();
    if (!now.ok() || *now == told_) return false;
    *answer = *std::move(now);
    return true;
  } catch (const std::bad_alloc&) {
    return false;  // there will be another time
  }
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
  // The copy of a message lies beside what gRPC holds of it.
  request.body_bytes = std::max<uint64_t>(bytes->size(), incoming_copy_.capacity()) +
                       request_codec_.unpacked_bytes();
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
  if (!BeginRunning()) return absl::CancelledError("the client has gone");
  host_.parts().inference->Run(*this);
  return absl::OkStatus();
}

// The buffer as the pool lends it; names and shapes lie in it before the rows.
uint64_t GrpcCall::AnswerBytes() const {
  constexpr uint64_t kBesideTensorBytes = 128;
  uint64_t bytes = kBesideTensorBytes + request.model.size() + request.id.size();
  for (const OutputTensor& output : outputs)
    bytes += output.byte_count + output.name.size() + kBesideTensorBytes;
  return ResponseBufferPool::LentFor(bytes);
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
  {
    MutexLock lock(mutex_);
    is_running_ = false;
  }
  try {
    SendAnswer(status);
  } catch (const std::bad_alloc&) {
    OnNoMemory();
  }
}

void GrpcCall::SendAnswer(const absl::Status& status) {
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
  slices_.clear();
  slices_.reserve(pieces.size());
  // Each piece has a reference of its own; the first takes over this call's.
  ResponseBuffer* const buffer = std::exchange(answer_, nullptr);
  buffer->AddReferences(pieces.size() - 1);
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
  if (is_watch()) return Watch();
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

void GrpcCall::FinishLocked(const absl::Status& status) { FinishWith(ToGrpc(status)); }

void GrpcCall::FinishWith(const grpc::Status& status) {
  phase_ = Phase::kFinishing;
  phase_since_ = RealClock().Now();
  ++pending_;
  stream_->Finish(status, &finished_tag_);
}

void GrpcCall::CancelIfStuck(TimePoint now) {
  const ServerConfig& config = *host_.parts().config;
  MutexLock lock(mutex_);
  if (phase_ == Phase::kReading && is_stream_ && now - phase_since_ > config.stream_idle_timeout) {
    host_.parts().counters->CountBadRequest(BadRequestReason::kTimeout);
    return FinishLocked(absl::DeadlineExceededError(
        "no request came for longer than [server] stream_idle_timeout"));
  }
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
  TellWatcher();  // that the server is not ready any more; that it ends, it learns then
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
  if (!stream_peer_.empty()) host_.streams().Return(std::exchange(stream_peer_, std::string()));
  {
    MutexLock lock(mutex_);
    stream_.reset();
    context_.reset();
    phase_ = Phase::kFree;
  }
  host_.OnEnded(*this);
}

}  // namespace hps::server
