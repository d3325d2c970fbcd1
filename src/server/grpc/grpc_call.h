// The work of one request of a gRPC call: an inference, or a control method that is slow. The
// object is reused for the next request.
//
// A stream starts the work. It ends with one call of GrpcConnection::OnCallEnded, on any thread.
// Before its inference is started, a request may wait for its turn; the turn comes by
// GrpcConnection::OnTurn, on any thread.
//
// Not thread-safe: belongs to the thread that drives the connection, or, while `execution` is
// kRunning, to the server.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "server/core/inference_call.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/response_writer.h"
#include "server/grpc_codec/proto_infer_request.h"
#include "server/grpc_codec/proto_infer_response.h"
#include "server/net/backlog.h"

namespace hps::server {

class GrpcServer;
class GrpcStream;

class GrpcCall final : public InferenceCall, private Task, private Backlog::Waiter {
 public:
  enum class Execution : uint8_t {
    kNone,      // the stream's
    kQueued,    // in the backlog, or its turn is under way to the connection
    kRunnable,  // waits for a thread that looks it up
    kRunning,   // is looked up, or runs on another executor
  };

  GrpcCall(GrpcServer& server, GrpcStream& stream);

  GrpcStream& stream() const { return stream_; }

  // ---- When the request arrived.

  void SetArrival(TimePoint arrival, Duration socket_wait) {
    arrival_ = arrival;
    socket_wait_ = socket_wait;
  }
  TimePoint arrival() const { return arrival_; }
  // The time from BeginWait to EndWait counts as time that the request waited in its socket.
  void BeginWait(TimePoint now) { waits_since_ = now; }
  void EndWait(TimePoint now) { socket_wait_ += now - waits_since_; }

  // ---- The work.

  // Reads the model's name, the id and the time limit from the first bytes of a message, before its
  // inference is started. request's views point into `bytes`.
  void ReadHead(std::span<const std::byte> bytes) { request_codec_.ParseHead(bytes, &request); }
  // Reduces request.timeout to `deadline`, gRPC's own.
  void LimitTimeout(TimePoint deadline);

  // Decodes, validates and admits an inference, and provides its rows' memory in `response`; the
  // server may look it up then. Bad and refused requests are counted.
  struct InferStart {
    std::span<const std::byte> message;  // until ReleaseRequest
    uint64_t held_bytes;                 // pool memory that holds the message
    TimePoint deadline;                  // gRPC's own
    bool in_stream;                      // of answers
  };
  absl::Status StartInfer(const InferStart& start, ResponseWriter* response);

  // Runs `method` on a thread for slow tasks. `message` lives until the end. Errors: those of
  // Executor::Post.
  absl::Status StartControl(const ControlMethods::Method& method, std::string_view message);

  // ---- After its end.

  // The answer of a control method, or the status of an inference.
  ControlMethods::Answer TakeResult() { return std::exchange(result_, std::string()); }
  // The answer of an inference.
  std::span<const std::span<std::byte>> pieces() const { return response_codec_.pieces(); }

  // Releases the memory of the decoded request, when the request is not read any more.
  void ReleaseRequest() { request_codec_.Trim(); }

  void OnDone(const absl::Status& status) override;
  uint64_t AnswerBytes() const override;

  // ---- Kept for GrpcCallQueue.

  Backlog::Entry& waiting() { return waiting_; }
  Execution execution = Execution::kNone;
  bool holds_turn = false;  // it had its turn, and its lookup has not begun
  GrpcCall* next = nullptr;

 private:
  bool TakeTurn(const Backlog::Turn& turn) override;
  void Run() override;

  GrpcServer& server_;
  GrpcStream& stream_;
  Backlog::Entry waiting_{this};
  TimePoint arrival_{};
  Duration socket_wait_{};   // from its arrival until it was read, or started
  TimePoint waits_since_{};  // for its turn
  const ControlMethods::Method* method_ = nullptr;  // StartControl's
  std::string_view message_;
  InferRequestCodec request_codec_;
  InferResponseCodec response_codec_;
  ControlMethods::Answer result_ = std::string();
};

}  // namespace hps::server
