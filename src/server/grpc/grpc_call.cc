#include "server/grpc/grpc_call.h"

#include <new>
#include <string>
#include <utility>

#include "base/macros.h"
#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_stream.h"

namespace hps::server {

GrpcCall::GrpcCall(GrpcServer& server, GrpcStream& stream) : server_(server), stream_(stream) {}

void GrpcCall::LimitTimeout(TimePoint deadline) {
  if (deadline == kNoDeadline) return;
  const Duration timeout = deadline - arrival_;
  if (request.timeout == Duration::zero() || timeout < request.timeout) request.timeout = timeout;
}

absl::Status GrpcCall::StartInfer(const InferStart& start, ResponseWriter* response) {
  request.model = request.id = {};  // ReadHead's views may be dangling
  request.timeout = Duration::zero();
  request.protocol = Protocol::kGrpc;
  request.arrival = arrival_;
  request.socket_wait = socket_wait_;
  const absl::Status parsed =
      request_codec_.Parse(start.message, server_.parts().config->body_bytes_max, &request);
  if (!parsed.ok()) {
    server_.CountBadRequest(parsed, BadRequestReason::kSyntax);
    return parsed;
  }
  request.body_bytes = start.held_bytes + request_codec_.unpacked_bytes();
  LimitTimeout(start.deadline);
  HPS_RETURN_IF_ERROR(server_.parts().inference->Prepare(*this));
  const size_t answer_bytes = response_codec_.Plan(
      *this, {.in_stream = start.in_stream,
              .final_mark = start.in_stream && request_codec_.wants_final_mark()});
  absl::StatusOr<BufferPool::Lease> rows =
      server_.pool().Acquire(answer_bytes, BufferPool::Use::kAnswer);
  if (!rows.ok()) {
    server_.parts().counters->CountRefused(RefusedReason::kCapacity);
    return rows.status();
  }
  response->HoldRows(*std::move(rows));
  response_codec_.Place(response->rows().data(), this);
  return absl::OkStatus();
}

absl::Status GrpcCall::StartControl(const ControlMethods::Method& method,
                                    std::string_view message) {
  method_ = &method;
  message_ = message;
  execution = Execution::kRunning;
  const absl::Status posted = server_.PostSlow(this);
  if (!posted.ok()) execution = Execution::kNone;
  return posted;
}

void GrpcCall::Run() {
  try {
    result_ = server_.control().Call(*method_, message_);
  } catch (const std::bad_alloc&) {
    result_ = absl::ResourceExhaustedError("out of memory; try again later");
  }
  stream_.connection().OnCallEnded(*this);
}

void GrpcCall::OnDone(const absl::Status& status) {
  result_ = status.ok() ? ControlMethods::Answer(std::string()) : status;
  stream_.connection().OnCallEnded(*this);
}

// The turn is passed as an event, because another thread may drive the connection.
bool GrpcCall::TakeTurn(const Backlog::Turn& /*turn*/) {
  return stream_.connection().OnTurn(*this);
}

// The buffer as the pool lends it; names and shapes lie before the rows.
uint64_t GrpcCall::AnswerBytes() const {
  constexpr uint64_t kBesideTensorBytes = 128;
  uint64_t bytes = kBesideTensorBytes + request.model.size() + request.id.size();
  for (const OutputTensor& output : outputs)
    bytes += output.byte_count + output.name.size() + kBesideTensorBytes;
  return BufferPool::LentFor(bytes);
}

}  // namespace hps::server
