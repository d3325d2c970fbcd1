// One gRPC call. Its requests are answered one at a time, in order. The object is reused for later
// calls.
//
// CallMetadata parses the header fields, RequestReader collects the request messages, GrpcCall does
// the work of a request, and ResponseWriter holds the response. This class decides which step is
// next. Inferences are started with GrpcCall; the other methods are called in ControlMethods.
//
// Not thread-safe: only the thread that drives the connection may call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "server/grpc/call_metadata.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/grpc_call.h"
#include "server/grpc/http2_stream.h"
#include "server/grpc/request_reader.h"

namespace hps::server {

class GrpcConnection;
class GrpcServer;

class GrpcStream final : public Http2Stream {
 public:
  explicit GrpcStream(GrpcServer& server);

  // REQUIRES: the object is new, or End was called. `stream_id` is HTTP/2's.
  void Begin(GrpcConnection& connection, int32_t stream_id);
  // Releases everything, so that the object can be reused.
  void End();

  // ---- Events, from the connection; Http2Stream has those of the session.

  size_t OnField(std::string_view name, std::string_view value) override;
  void OnFields() override;
  void OnData(std::span<const std::byte> bytes) override;
  void OnEnd() override;
  void OnNoMemory() override;  // ends the call with RESOURCE_EXHAUSTED
  void OnTurn();               // the queued request may begin
  void OnCallEnded();          // the lookup or the slow method has ended
  void OnFlushed();            // the socket has taken all bytes of the response
  void OnDrain();
  void OnTime(TimePoint now);  // acts if the deadline of the phase has passed
  // The HTTP/2 stream is closed. `cut`: because the connection is.
  void OnClosed(bool cut);

  // REQUIRES: between Begin and End.
  GrpcConnection& connection() const { return *connection_; }
  GrpcCall& call() { return call_; }

  size_t index = 0;  // among the connection's streams

 private:
  enum class Phase : uint8_t { kFields, kReading, kCalling, kSending, kWatching, kFinishing };

  bool is_watch() const {
    return method_ != nullptr && method_->kind == ControlMethods::Kind::kWatch;
  }
  void SetDeadline(TimePoint deadline);
  void NoteArrival();

  // Reading.
  bool AdmitsToken(std::string_view authorization) const;
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
  void SendControl(ControlMethods::Answer answer);
  void TellWatcher();
  void StartInfer();
  void SendRows();
  void SendRefusal(const absl::Status& status);
  void SendError(const absl::Status& status);
  void SendText(std::string text);
  ResponseWriter::After BeginSending();
  void Finish(const absl::Status& status);
  absl::Status CountMessage(const absl::Status& status);
  void GiveBack();
  void ReleaseMessage();
  void ReleaseRequest();

  GrpcServer& server_;
  GrpcConnection* connection_ = nullptr;
  Phase phase_ = Phase::kFields;
  TimePoint deadline_ = kNoDeadline;       // of the phase
  TimePoint call_deadline_ = kNoDeadline;  // grpc-timeout's

  CallMetadata metadata_;
  const ControlMethods::Method* method_ = nullptr;  // null: inference, or unknown
  bool is_stream_ = false;                          // the method's requests are a stream
  bool has_place_ = false;                          // counted among the server's open streams

  RequestReader request_reader_;
  size_t unread_bytes_ = 0;  // received early; the client's window is smaller by them
  GrpcCall call_;
};

}  // namespace hps::server
