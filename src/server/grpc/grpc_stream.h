// One gRPC call. The object is reused for later calls.
//
// CallMetadata parses the header fields, RequestReader collects the request messages and
// ResponseWriter holds what is sent. This class decides what happens next. Our own codec reads and
// writes inference messages, with the rows in a pooled buffer from which the connection sends. The
// other methods go to ControlMethods. The requests of a stream are answered one at a time, in
// order.
//
// Not thread-safe: only the thread that drives the connection may call it. TakeTurn, Run and OnDone
// may be called by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "server/core/inference_call.h"
#include "server/grpc/call_metadata.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/request_reader.h"
#include "server/grpc/response_writer.h"
#include "server/grpc_codec/proto_infer_request.h"
#include "server/grpc_codec/proto_infer_response.h"
#include "server/net/backlog.h"

namespace hps::server {

class GrpcConnection;
class GrpcServer;

class GrpcStream final : public InferenceCall, private Task, private Backlog::Waiter {
 public:
  // The call is with the server's queue or its workers while it is not kNone.
  enum class Execution : uint8_t {
    kNone,
    kQueued,    // in the backlog, or its turn is on its way
    kRunnable,  // waits for a thread to look it up
    kRunning,   // is looked up, or runs on another executor
  };
  // The response as HTTP/2 sees it.
  enum class Http : uint8_t {
    kClosed,
    kOpen,
    kAnswering,  // open, and the response's header fields were submitted
  };

  explicit GrpcStream(GrpcServer& server);
  ~GrpcStream() override;

  // ---- Events, from the connection.

  // REQUIRES: the object is new, or End was called. `id` is that of the HTTP/2 stream.
  void Begin(GrpcConnection& connection, int32_t id);
  void OnField(std::string_view name, std::string_view value);
  void OnFields();  // all header fields have arrived
  void OnData(std::span<const std::byte> bytes);
  void OnEnd();        // the client sends no more
  void OnTurn();       // the queued request may begin
  void OnCallEnded();  // the lookup or the slow method has ended
  void OnFlushed();    // the kernel has taken all bytes of the response
  void OnDrain();
  void OnTime(TimePoint now);  // acts if the deadline of the phase has passed
  // The HTTP/2 stream is closed. `cut`: because the connection is.
  void OnClosed(bool cut);
  // An allocation of this call failed: ends it with RESOURCE_EXHAUSTED.
  void OnNoMemory();

  // Releases everything, so that the object can be reused.
  void End();

  // ---- What the connection sends.

  ResponseWriter& response() { return response_; }
  const ResponseWriter& response() const { return response_; }

  // ---- State that the connection keeps for the call.
  int32_t id() const { return id_; }
  TimePoint arrival() const { return arrival_; }  // of its request
  size_t field_bytes() const { return metadata_.bytes(); }
  Backlog::Entry& waiting() { return waiting_; }
  bool is_open() const { return http != Http::kClosed; }
  size_t index = 0;  // among the connection's streams
  Http http = Http::kClosed;
  Execution execution = Execution::kNone;
  bool holds_turn = false;     // it had its turn, and its lookup has not begun
  bool in_output = false;      // the connection's output has views of its memory
  uint64_t output_end = 0;     // the position in the output where the last view ends
  GrpcStream* next = nullptr;  // in the connection's list

  void OnDone(const absl::Status& status) override;
  uint64_t AnswerBytes() const override;

 private:
  enum class Phase : uint8_t { kFields, kReading, kCalling, kSending, kWatching, kFinishing };

  bool is_watch() const { return control_method_ != nullptr && control_method_->is_watch; }
  void SetDeadline(TimePoint deadline);
  void NoteArrival();
  bool TakeTurn(const Backlog::Turn& turn) override;

  // Reading.
  absl::Status Admit();
  void Read();
  uint64_t message_bytes_max() const;  // of the method
  void TakeMessages();
  void Answer();
  absl::Status ReadHead();
  void AnswerNow();
  void RefuseLate();

  // Answering.
  void AnswerControl();
  void Run() override;  // a load or unload, where it may take its time
  void SendControl(ControlMethods::Answer answer);
  void TellWatcher();
  absl::Status StartInference();
  void SetTimeout();
  void SendRows();
  void SendRefusal(const absl::Status& status);
  void SendError(const absl::Status& status);
  void SendText(std::string text);
  ResponseWriter::After BeginSending();
  void Finish(const absl::Status& status);
  absl::Status CountMessage(const absl::Status& status, BadRequestReason invalid);
  void CountBadRequest(const absl::Status& status, BadRequestReason invalid);
  void GiveBack();
  void ReleaseMessage();
  void ReleaseRequest();
  void ReleaseAnswer();

  GrpcServer& server_;
  GrpcConnection* connection_ = nullptr;
  int32_t id_ = 0;
  Phase phase_ = Phase::kFields;
  TimePoint deadline_ = kNoDeadline;       // of the phase
  TimePoint call_deadline_ = kNoDeadline;  // grpc-timeout's
  TimePoint arrival_{};                    // of the request that is read or answered now
  Duration socket_wait_{};                 // how long that request waited before it was read
  TimePoint left_at_{};                    // when the request was queued
  Backlog::Entry waiting_{this};

  CallMetadata metadata_;
  const ControlMethods::Method* control_method_ = nullptr;
  bool is_stream_ = false;  // the method's requests are a stream
  bool has_place_ = false;  // counted among the server's open streams
  size_t unread_ = 0;       // bytes received early; the client's window is smaller by them

  RequestReader request_reader_;
  InferRequestCodec request_codec_;
  ControlMethods::Answer result_ = std::string();  // of an inference: only its status
  InferResponseCodec response_codec_;
  ResponseWriter response_;
};

// Calls `act`, an event of the stream. If an allocation fails in it, the call ends.
template <typename Act>
void Tell(GrpcStream& stream, const Act& act) {
  try {
    act();
  } catch (const std::bad_alloc&) {
    stream.OnNoMemory();
  }
}

}  // namespace hps::server
