#include "server/grpc/grpc_stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/no_memory.h"
#include "base/text.h"
#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_status.h"

namespace hps::server {
namespace {

constexpr std::string_view kInferPath = "/inference.GRPCInferenceService/ModelInfer";
constexpr std::string_view kStreamPath = "/inference.GRPCInferenceService/ModelStreamInfer";
// Of a text that stays for the next call.
constexpr size_t kKeptBytesMax = 4096;
// Unpacked for ReadHead.
constexpr size_t kPackedHeadBytes = 4096;
constexpr Duration kWatchPeriod = std::chrono::milliseconds(500);

TimePoint Now() { return RealClock().Now(); }

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

MessageCoding CodingOf(std::string_view name) {
  if (name == "identity") return MessageCoding::kIdentity;
  if (name == "gzip") return MessageCoding::kGzip;
  return name == "deflate" ? MessageCoding::kDeflate : MessageCoding::kUnknown;
}

bool IsGrpc(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (!content_type.starts_with(kType)) return false;
  const std::string_view rest = content_type.substr(kType.size());
  return rest.empty() || rest == "+proto" || rest.front() == ';';
}

void Trim(std::string* text) {
  text->clear();
  if (text->capacity() > kKeptBytesMax) *text = std::string();
}

}  // namespace

GrpcStream::~GrpcStream() { Reset(); }

void GrpcStream::Begin(GrpcConnection& connection, int32_t id) {
  connection_ = &connection;
  id_ = id;
  NoteArrival();
  phase_ = Phase::kFields;
  call_deadline_ = kNoDeadline;
  SetDeadline(connection.read_at() + server_.parts().config->header_timeout);
}

// A request came when its socket had something to read, not when there was time to read it.
void GrpcStream::NoteArrival() {
  arrival_ = connection_->arrived_at();
  unread_wait_ = connection_->read_at() - arrival_;
}

void GrpcStream::End() {
  GiveBack();
  if (has_place_) connection_->ReturnPlace(is_watch());
  has_place_ = false;
  connection_ = nullptr;
  deadline_ = kNoDeadline;
  field_bytes_ = unread_ = 0;
  is_post_ = is_grpc_ = is_timeout_wrong_ = is_stream_ = is_ended_ = ends_ = false;
  is_open = has_answer_head = in_output = in_server = awaits_turn = is_runnable = false;
  is_admitted_.reset();
  coding_ = MessageCoding::kIdentity;
  control_method_ = nullptr;
  end_code_ = absl::StatusCode::kOk;
  for (std::string* text : {&path_, &told_, &end_message_}) Trim(text);
}

void GrpcStream::SetDeadline(TimePoint deadline) {
  deadline_ = deadline;
  connection_->NoteDeadline(deadline);
}

// ---- Reading ------------------------------------------------------------------------------------

void GrpcStream::OnField(std::string_view name, std::string_view value) {
  constexpr size_t kBytesBeside = 32;
  field_bytes_ += name.size() + value.size() + kBytesBeside;
  if (field_bytes_ > kCallFieldBytesMax || phase_ != Phase::kFields) return;
  if (name == ":path") {
    path_.assign(value);
  } else if (name == ":method") {
    is_post_ = value == "POST";
  } else if (name == "content-type") {
    is_grpc_ = IsGrpc(value);
  } else if (name == "authorization") {
    // Of two, a proxy in front may have looked at the other one.
    is_admitted_ = !is_admitted_.has_value() && server_.Admits(value);
  } else if (name == "grpc-encoding") {
    coding_ = CodingOf(value);
  } else if (name == "grpc-timeout") {
    const std::optional<Duration> timeout = ParseTimeout(value);
    is_timeout_wrong_ = !timeout.has_value();
    if (timeout) call_deadline_ = arrival_ + *timeout;
  }
}

void GrpcStream::OnFields() {
  if (phase_ != Phase::kFields) return;  // trailers
  server_.parts().counters->CountRequest(Protocol::kGrpc);
  phase_ = Phase::kReading;
  SetDeadline(kNoDeadline);
  if (field_bytes_ > kCallFieldBytesMax) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kLimit);
    return Finish(absl::ResourceExhaustedError(
        absl::StrCat("the call's metadata are more than ", kCallFieldBytesMax, " bytes")));
  }
  if (!is_post_ || !is_grpc_) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
    phase_ = Phase::kFinishing;
    SetDeadline(Now() + server_.parts().config->write_timeout);
    return connection_->SubmitHttpStatus(*this, is_post_ ? "415" : "405");
  }
  is_stream_ = path_ == kStreamPath;
  const bool is_inference = is_stream_ || path_ == kInferPath;
  control_method_ = is_inference ? nullptr : ControlMethods::Find(path_);
  absl::Status status = Admit();
  if (status.ok() && !is_inference && control_method_ == nullptr) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kUnknown);
    status = absl::UnimplementedError(absl::StrCat(
        "there is no method '", PrintableText(std::string_view(path_).substr(0, 256)), "'"));
  } else if (status.ok() && is_timeout_wrong_) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
    status = absl::InvalidArgumentError("grpc-timeout is none");
  }
  if (!status.ok()) return Finish(status);
  Read();
}

absl::Status GrpcStream::Admit() {
  const bool is_health = control_method_ != nullptr && control_method_->is_health;
  if (!is_health) {
    if (!is_admitted_.has_value()) is_admitted_ = server_.Admits({});
    if (!*is_admitted_) {
      server_.parts().counters->CountAuthFailure();
      return absl::UnauthenticatedError(
          "one bearer token is needed: 'authorization: Bearer TOKEN'");
    }
  }
  if (!is_stream_ && !is_watch()) return absl::OkStatus();
  const absl::Status placed = connection_->TakePlace(is_watch());
  has_place_ = placed.ok();
  if (!placed.ok()) server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  return placed;
}

// Waits for the next request, or for the only one.
void GrpcStream::Read() {
  const bool has_all = is_ended_ && !reader_.has_more();
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
  if (is_stream_ && reads && !reader_.has_more()) NoteArrival();
  if (const absl::Status added = reader_.Add(bytes, server_.pool()); !added.ok()) {
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
  is_ended_ = true;
  if (phase_ == Phase::kReading) TakeMessages();
}

// Unpacked, too.
uint64_t GrpcStream::message_bytes_max() const {
  const uint64_t most = server_.parts().config->body_bytes_max;
  return control_method_ == nullptr ? most : std::min(most, kControlBytesMax);
}

void GrpcStream::TakeMessages() {
  MessageReader::Message message;
  const absl::StatusOr<MessageReader::Step> step =
      reader_.Front(message_bytes_max(), server_.pool(), &message);
  if (!step.ok()) return Finish(CountMessage(step.status(), BadRequestReason::kProtocol));
  const bool has_message = *step == MessageReader::Step::kMessage;
  const char* wrong = nullptr;
  if (has_message && !is_stream_ && reader_.has_more()) {
    wrong = "the call has more than one request message";
  } else if (!has_message && is_ended_) {
    if (reader_.has_more()) {
      wrong = "the call ended within a message";
    } else if (is_stream_) {
      return Finish(absl::OkStatus());
    } else {
      wrong = "the call has no request message";
    }
  }
  if (wrong != nullptr) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
    return Finish(absl::InvalidArgumentError(wrong));
  }
  if (has_message && (is_stream_ || is_ended_)) Answer(message);
}

void GrpcStream::Answer(const MessageReader::Message& message) {
  phase_ = Phase::kCalling;
  SetDeadline(kNoDeadline);
  packed_ = message;
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
  std::span<const std::byte> bytes = packed_.bytes;
  if (packed_.is_compressed) {
    if (inflated_.memory.empty()) {
      HPS_ASSIGN_OR_RETURN(inflated_,
                           InflateHead(coding_, bytes, kPackedHeadBytes, server_.pool()));
    }
    bytes = inflated_.memory.bytes().first(inflated_.size);
  }
  request_codec_.ParseHead(bytes, &request);
  return absl::OkStatus();
}

// The connection hears of it as of an event: another thread may drive it.
bool GrpcStream::TakeTurn(const Backlog::Turn& /*turn*/) { return connection_->OnTurn(*this); }

void GrpcStream::OnTurn() {
  if (phase_ != Phase::kCalling) return;  // it was ended meanwhile
  SetDeadline(kNoDeadline);
  unread_wait_ += Now() - left_at_;
  AnswerNow();
}

// Before anything is made of its bytes.
void GrpcStream::RefuseLate() {
  server_.parts().counters->CountDeadlineExceeded(LateStage::kQueue);
  SendRefusal(absl::DeadlineExceededError("the call's time was over before its request was read"));
}

void GrpcStream::AnswerNow() {
  if (call_deadline_ <= Now() && control_method_ == nullptr) return RefuseLate();
  const absl::StatusOr<std::span<const std::byte>> bytes = Unpack(packed_);
  if (!bytes.ok()) return SendError(CountMessage(bytes.status(), BadRequestReason::kSyntax));
  message_ = *bytes;
  if (control_method_ != nullptr) return AnswerControl();
  const absl::Status started = StartInference();
  if (!started.ok()) SendRefusal(started);
}

absl::StatusOr<std::span<const std::byte>> GrpcStream::Unpack(
    const MessageReader::Message& message) {
  if (!message.is_compressed) return message.bytes;
  HPS_ASSIGN_OR_RETURN(inflated_,
                       InflateMessage(coding_, message.bytes, message_bytes_max(), server_.pool()));
  reader_.Pop();  // nobody reads the packed one any more, and its numbers may need the room
  packed_.bytes = {};
  return inflated_.memory.bytes().first(inflated_.size);
}

// ---- Answering ----------------------------------------------------------------------------------

void GrpcStream::AnswerControl() {
  if (!control_method_->is_slow)
    return SendControl(server_.control().Call(*control_method_, AsText(message_)));
  in_server = true;
  const absl::Status posted = server_.PostSlow(this);
  if (posted.ok()) return;
  in_server = false;
  SendError(posted);
}

void GrpcStream::Run() {
  try {
    control_answer_ = server_.control().Call(*control_method_, AsText(message_));
  } catch (const std::bad_alloc&) {
    control_answer_ = NoMemory();
  }
  connection_->OnCallEnded(*this);
}

void GrpcStream::SendControl(ControlMethods::Answer answer) {
  if (answer.ok()) return SendText(*std::move(answer));
  CountBadRequest(answer.status(), BadRequestReason::kSyntax);
  SendError(answer.status());
}

// Its request stays where it is.
void GrpcStream::TellWatcher() {
  const ControlMethods::Answer now = server_.control().Call(*control_method_, AsText(message_));
  if (now.ok() && *now != told_) return SendText(*now);
  if (server_.draining()) return Finish(ShuttingDown());
  SetDeadline(std::min(Now() + kWatchPeriod, call_deadline_));
}

absl::Status GrpcStream::StartInference() {
  request.model = request.id = {};  // ReadHead's, of memory that may be another's now
  request.timeout = Duration::zero();
  request.protocol = Protocol::kGrpc;
  request.arrival = arrival_;
  request.unread_wait = unread_wait_;
  if (const absl::Status parsed =
          request_codec_.Parse(message_, server_.parts().config->body_bytes_max, &request);
      !parsed.ok()) {
    CountBadRequest(parsed, BadRequestReason::kSyntax);
    return parsed;
  }
  request.body_bytes =
      reader_.lent_bytes() + inflated_.memory.bytes().size() + request_codec_.unpacked_bytes();
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
  rows_ = *std::move(rows);
  response_codec_.Place(rows_.bytes().data(), this);
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
  call_status_ = status;
  connection_->OnCallEnded(*this);
}

void GrpcStream::OnCallEnded() {
  if (phase_ != Phase::kCalling) return;  // it was ended meanwhile
  if (control_method_ != nullptr) return SendControl(std::move(control_answer_));
  const absl::Status status = std::exchange(call_status_, absl::OkStatus());
  if (status.ok()) return SendRows();
  SendRefusal(status);
}

void GrpcStream::SendRows() {
  ReleaseMessage();
  pieces_.clear();
  pieces_.emplace_back(prefix_);
  for (const std::span<std::byte> piece : response_codec_.pieces()) pieces_.emplace_back(piece);
  Send();
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
  told_ = std::move(text);
  if (!is_watch()) ReleaseMessage();
  pieces_.clear();
  pieces_.emplace_back(prefix_);
  pieces_.emplace_back(AsBytes(std::string_view(told_)));
  Send();
}

void GrpcStream::Send() {
  phase_ = is_stream_ || is_watch() ? Phase::kSending : Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  size_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces_) bytes += piece.size();
  unsent_bytes_ = bytes;
  first_piece_ = 0;
  prefix_[0] = std::byte{0};
  StoreLittleEndian(prefix_.data() + 1,
                    __builtin_bswap32(static_cast<uint32_t>(bytes - prefix_.size())));
  ends_ = phase_ == Phase::kFinishing;
  connection_->SubmitAnswer(*this);
}

void GrpcStream::Finish(const absl::Status& status) {
  phase_ = Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  end_code_ = status.code();
  end_message_ =
      StatusMessageText(std::string_view(status.message().data(), status.message().size()));
  ends_ = true;
  GiveBack();
  connection_->SubmitEnd(*this);
}

void GrpcStream::OnNoMemory() {
  server_.parts().counters->CountRefused(RefusedReason::kCapacity);
  if (phase_ == Phase::kFinishing || phase_ == Phase::kSending) {
    return connection_->ResetStream(*this);
  }
  // Short enough to need no memory.
  if (!in_server) GiveBack();
  phase_ = Phase::kFinishing;
  SetDeadline(Now() + server_.parts().config->write_timeout);
  end_code_ = absl::StatusCode::kResourceExhausted;
  end_message_.assign("no memory");
  ends_ = true;
  unsent_bytes_ = 0;
  connection_->SubmitEnd(*this);
}

void GrpcStream::TakeUnsent(size_t bytes, OutputQueue* out) {
  unsent_bytes_ -= bytes;
  while (bytes > 0) {
    std::span<const std::byte>& piece = pieces_[first_piece_];
    const size_t step = std::min(bytes, piece.size());
    out->AddView(piece.first(step));
    piece = piece.subspan(step);
    bytes -= step;
    if (piece.empty()) ++first_piece_;
  }
}

void GrpcStream::OnFlushed() {
  if (phase_ != Phase::kSending || unsent_bytes_ > 0) return;
  ReleaseAnswer();
  if (is_watch()) {
    phase_ = Phase::kWatching;
    return TellWatcher();
  }
  ReleaseRequest();
  if (reader_.has_more()) {
    arrival_ = Now();
    unread_wait_ = Duration::zero();
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

// Gives the look-up up of a client that has gone. One that is past its deadline has it as its own,
// and ends by it.
void GrpcStream::OnClosed(bool cut) {
  SetDeadline(kNoDeadline);
  if (!in_server || awaits_turn || is_runnable || control_method_ != nullptr) return;
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

// All that it holds of the server's memory.
void GrpcStream::GiveBack() {
  ReleaseAnswer();
  reader_.Clear();
  ReleaseRequest();
}

// The message that is answered, when its answer is there: a client that takes it slowly holds none
// of its request.
void GrpcStream::ReleaseMessage() {
  reader_.Pop();
  packed_ = {};
  message_ = {};
  inflated_ = InflatedMessage();
  request_codec_.Trim();
}

// The share of the capacity comes last: who is admitted in its place finds the memory there.
void GrpcStream::ReleaseRequest() {
  ReleaseMessage();
  Reset();
}

void GrpcStream::ReleaseAnswer() {
  rows_.Release();
  pieces_.clear();
  first_piece_ = unsent_bytes_ = 0;
}

}  // namespace hps::server
