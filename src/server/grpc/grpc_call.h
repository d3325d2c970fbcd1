// One gRPC call on its way through the server, and then the next one: call objects are used again.
//
// All methods come through gRPC's generic service as bytes. Inference is read and answered by our
// own codec, with the rows in a pooled buffer that gRPC sends from; the other methods go to
// ControlMethods. A stream is answered one request after the other, in order.
//
// Life: Request -> accepted -> read -> (look-up) -> written -> read ... -> finished -> ended, when
// the host may request with it again. Events come from the completion queue's threads, one at a
// time but for a stream that is ended while it waits for its client.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "server/core/inference_call.h"
#include "server/core/protocol_server.h"
#include "server/core/token_guard.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/stream_places.h"
#include "server/grpc_codec/infer_request_codec.h"
#include "server/grpc_codec/infer_response_codec.h"
#include "server/grpc_codec/response_buffer.h"

namespace hps::server {

class GrpcCall;

// What calls share. Outlives them.
class GrpcCallHost {
 public:
  virtual ~GrpcCallHost() = default;

  virtual const ProtocolParts& parts() const = 0;
  virtual const ControlMethods& control() const = 0;
  virtual std::shared_ptr<const TokenGuard> token() const = 0;
  virtual ResponseBufferPool& buffers() = 0;
  virtual WorkerPool& slow_work() = 0;
  virtual bool is_draining() const = 0;
  // The call has been accepted: the host requests another. False: it is one too many.
  virtual bool OnAccepted() = 0;
  // The call has ended, and is the host's again.
  virtual void OnEnded(GrpcCall& call) = 0;
  virtual StreamPlaces& streams() = 0;
  // No call has come for it, and none will: the server has been shut down.
  virtual void OnNotAccepted() = 0;
};

class GrpcCall final : public InferenceCall {
 public:
  // kDone: the call has ended for gRPC, whether it was answered or its client has gone.
  enum class Event : uint8_t { kAccepted, kRead, kWritten, kFinished, kDone };
  // What the completion queue hands back.
  struct Tag {
    GrpcCall* call = nullptr;
    Event event{};
  };

  GrpcCall(GrpcCallHost& host, grpc::ServerCompletionQueue& queue);
  ~GrpcCall() override;

  // Waits for a client's next call. `number` tells it from others that this object served.
  void Request(grpc::AsyncGenericService& service);

  void OnEvent(Event event, bool ok);
  void OnDone(const absl::Status& status) override;
  uint64_t AnswerBytes() const override;

  // Ends it when its client has kept it waiting too long, a stream also between two requests. Any
  // thread.
  void CancelIfStuck(TimePoint now);
  // Ends a stream that waits for its client's next request, or for something to tell it. Any
  // thread.
  void EndIfIdleStream();
  // Tells a client that watches what has changed. Any thread.
  void TellWatcher();

 private:
  enum class Phase : uint8_t { kFree, kReading, kWorking, kSending, kWatching, kFinishing };

  // Runs a control method that may take long.
  class SlowTask final : public Task {
   public:
    explicit SlowTask(GrpcCall& call) : call_(call) {}
    void Run() override { call_.AnswerControl(); }

   private:
    GrpcCall& call_;
  };

  void HandleEvent(Event event, bool ok);
  void OnAccepted();
  void OnRead(bool ok);
  void OnGone();
  bool is_watch() const { return control_method_ != nullptr && control_method_->is_watch; }
  void OnWritten(bool ok);
  absl::Status Admit();
  absl::Status CheckToken();
  absl::Status StartInference();
  absl::Status SetTimeout();
  void AnswerControl();
  bool HasNews(std::string* answer);
  void Watch();
  void SendAnswer(const absl::Status& status);
  void AnswerInference();
  // Whether the call may be given to the server: not when its client has gone.
  bool BeginRunning();

  // Each starts one operation of gRPC.
  void Read();
  void Send(const grpc::ByteBuffer& message);
  void Finish(const absl::Status& status);
  void FinishLocked(const absl::Status& status) HPS_REQUIRES(mutex_);
  void FinishWith(const grpc::Status& status) HPS_REQUIRES(mutex_);
  void OnNoMemory();

  // The request's bytes, inflated. Errors: those of InflateMessage.
  absl::StatusOr<std::string_view> message();
  // Gives back what an unusually large message has taken.
  void TrimMessage();
  void CountBadRequest(const absl::Status& status);
  void ReleaseAnswer();
  void Recycle();

  GrpcCallHost& host_;
  grpc::ServerCompletionQueue& queue_;
  Tag accepted_tag_{this, Event::kAccepted};
  Tag read_tag_{this, Event::kRead};
  Tag written_tag_{this, Event::kWritten};
  Tag finished_tag_{this, Event::kFinished};
  Tag done_tag_{this, Event::kDone};
  SlowTask slow_task_{*this};

  // Of the call that it serves now. The context's lifetime is guarded, for those who cancel.
  Mutex mutex_;
  Phase phase_ HPS_GUARDED_BY(mutex_) = Phase::kFree;
  TimePoint phase_since_ HPS_GUARDED_BY(mutex_){};
  int pending_ HPS_GUARDED_BY(mutex_) = 0;          // operations of gRPC
  bool is_gone_ HPS_GUARDED_BY(mutex_) = false;     // its client
  bool is_running_ HPS_GUARDED_BY(mutex_) = false;  // the server has the call
  bool is_done_ HPS_GUARDED_BY(mutex_) = false;     // for gRPC
  // While the server is asked to give the call up, what was written is taken note of only then: the
  // call is not to be reset meanwhile.
  bool is_giving_up_ HPS_GUARDED_BY(mutex_) = false;
  std::optional<bool> written_meanwhile_ HPS_GUARDED_BY(mutex_);
  std::optional<grpc::GenericServerContext> context_;
  std::optional<grpc::GenericServerAsyncReaderWriter> stream_;
  const ControlMethods::Method* control_method_ = nullptr;
  bool is_stream_ = false;
  std::string told_;  // to a client that watches: the last answer
  bool is_refused_ = false;
  std::string stream_peer_;  // whose place it has; empty = none
  TimePoint arrival_{};

  grpc::ByteBuffer incoming_;
  grpc::Slice incoming_slice_;
  std::string incoming_copy_;  // of a message that came in several pieces, or compressed
  InferRequestCodec request_codec_;
  InferResponseCodec response_codec_;
  ResponseBuffer* answer_ = nullptr;
  std::vector<grpc::Slice> slices_;
};

}  // namespace hps::server
