// One gRPC call on its way through the server; then the object is used again for another.
//
// Inference is read and answered by our own codec, with the rows in a pooled buffer that the
// connection sends from; the other methods go to ControlMethods. A stream's requests are answered
// one after the other, in order.
//
// It belongs to whoever drives its connection, but for what says otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "server/core/inference_call.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/message_inflater.h"
#include "server/grpc/message_reader.h"
#include "server/grpc/output_queue.h"
#include "server/grpc_codec/proto_infer_request.h"
#include "server/grpc_codec/proto_infer_response.h"
#include "server/net/backlog.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

// Of all the fields of a call together, each with 32 bytes more, as HTTP/2 counts them.
inline constexpr size_t kCallFieldBytesMax = 16 << 10;

class GrpcConnection;
class GrpcServer;

class GrpcStream final : public InferenceCall, private Task, private Backlog::Waiter {
 public:
  explicit GrpcStream(GrpcServer& server) : server_(server) {}
  ~GrpcStream() override;

  // ---- What its connection tells it.

  // REQUIRES: new, or given back. `id`: of HTTP/2's stream.
  void Begin(GrpcConnection& connection, int32_t id);
  void OnField(std::string_view name, std::string_view value);
  void OnFields();  // all of them are there
  void OnData(std::span<const std::byte> bytes);
  void OnEnd();        // the client sends no more
  void OnTurn();       // what awaits its turn begins
  void OnCallEnded();  // the server has handed the call back
  void OnFlushed();    // what was to be sent of an answer is with the system
  void OnDrain();
  void OnTime(TimePoint now);  // ends it, or tells something, where its deadline has passed
  // HTTP/2's stream is closed. `cut`: with its connection.
  void OnClosed(bool cut);
  // An allocation failed on its way.
  void OnNoMemory();

  // Gives back all that it has, to be given to the server again.
  void End();

  // ---- What the connection sends.

  size_t unsent_bytes() const { return unsent_bytes_; }
  bool ends() const { return ends_; }  // its status follows what is unsent
  absl::StatusCode end_code() const { return end_code_; }
  const std::string& end_message() const { return end_message_; }  // encoded
  void TakeUnsent(size_t bytes, OutputQueue* out);

  // ---- What the connection keeps of it.
  int32_t id() const { return id_; }
  TimePoint arrival() const { return arrival_; }  // of its request
  size_t field_bytes() const { return field_bytes_; }
  Backlog::Entry& waiting() { return waiting_; }
  size_t index = 0;              // among the connection's streams
  bool is_open = false;          // for HTTP/2
  bool has_answer_head = false;  // was begun to be answered
  bool in_output = false;        // views of its memory are being sent
  uint64_t output_end = 0;       // ... up to there in the connection's output
  bool in_server = false;        // it is looked up, or works elsewhere
  bool awaits_turn = false;      // ... or waits in the backlog, or its turn is on its way
  bool holds_turn = false;       // it had its turn, and is not looked up yet
  bool is_runnable = false;      // ... or waits for a thread to begin that
  GrpcStream* next = nullptr;    // in the connection's list

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
  void Answer(const MessageReader::Message& message);
  absl::Status ReadHead();
  void AnswerNow();
  void RefuseLate();
  absl::StatusOr<std::span<const std::byte>> Unpack(const MessageReader::Message& message);

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
  void Send();
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
  Duration unread_wait_{};                 // ... which it waited from then on
  TimePoint left_at_{};                    // when it began to wait for its turn
  Backlog::Entry waiting_{this};

  // The fields.
  size_t field_bytes_ = 0;
  std::string path_;
  bool is_post_ = false;
  bool is_grpc_ = false;
  bool is_timeout_wrong_ = false;
  std::optional<bool> is_admitted_;
  MessageCoding coding_ = MessageCoding::kIdentity;
  const ControlMethods::Method* control_method_ = nullptr;
  bool is_stream_ = false;  // of requests
  bool has_place_ = false;  // among the streams of the server

  // The request.
  MessageReader reader_;
  bool is_ended_ = false;  // the client sends no more
  size_t unread_ = 0;  // bytes that came before their turn: the client's window is smaller by it
  MessageReader::Message packed_;
  std::span<const std::byte> message_;
  InflatedMessage inflated_;
  InferRequestCodec request_codec_;

  // The answer.
  absl::Status call_status_;
  ControlMethods::Answer control_answer_ = std::string();
  InferResponseCodec response_codec_;
  BufferPool::Lease rows_;
  std::string told_;  // an answer that is no rows; to a client that watches: the last one
  std::array<std::byte, kMessagePrefixBytes> prefix_{};
  std::vector<std::span<const std::byte>> pieces_;
  size_t first_piece_ = 0;
  size_t unsent_bytes_ = 0;
  bool ends_ = false;
  absl::StatusCode end_code_ = absl::StatusCode::kOk;
  std::string end_message_;
};

// Does what one of a stream's callbacks does; where there is no memory for it, the stream ends.
template <typename Act>
void Tell(GrpcStream& stream, const Act& act) {
  try {
    act();
  } catch (const std::bad_alloc&) {
    stream.OnNoMemory();
  }
}

}  // namespace hps::server
