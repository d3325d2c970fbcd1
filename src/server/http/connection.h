// One HTTP connection: reads a request, has it answered, writes the answer, and again.
//
// Requests of one connection are answered in order; server/net/served_connection.h says who does
// it.
//
// Memory: an idle connection holds none but itself. A request takes an input buffer, room for its
// body when it does not fit there, and room for its rows, all from the server's pool.
//
// Thread-safe: what ServedConnection says. All else belongs to whoever drives.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"
#include "server/http/api.h"
#include "server/http/compression.h"
#include "server/http/http_error.h"
#include "server/http/json_infer_request.h"
#include "server/http/request_head.h"
#include "server/http/route.h"
#include "server/net/buffer_pool.h"
#include "server/net/served_connection.h"

namespace hps::server {

// A client that ends its sending while its request is looked up may be gone, or may still read the
// answer: for so long it is taken to read.
inline constexpr Duration kGoneTimeout = std::chrono::seconds(1);

class HttpServer;

class Connection final : public ServedConnection, public InferenceCall, private Task {
 public:
  explicit Connection(HttpServer& server);
  ~Connection() override;

  void OnDone(const absl::Status& status) override;
  uint64_t AnswerBytes() const override;

 private:
  enum class State : uint8_t { kClosed, kReading, kCalling, kWriting, kLingering };
  enum class Phase : uint8_t { kHead, kBody, kChunks };
  enum class Step : uint8_t { kNeedsMore, kDone };  // kDone: the state or the phase has changed

  // ServedConnection
  void BeginTurn() override { turn_requests_ = 0; }
  void Handle(uint32_t events, bool may_start) override;
  void OnNoMemory() override;
  InferenceCall* TakeCall(bool may_start) override;
  void PutBack(InferenceCall& call) override;
  bool has_calls() const override { return false; }
  bool IsIdle() const override;
  void OnDrivenElsewhere(uint32_t events) override;

  void Advance(bool may_start);
  void OpenNow();
  void Close();
  bool HandleTick();
  void ExpectNextRequest(TimePoint now);

  // Reading.
  void ReadOn();
  bool ReadMore();
  void NoteArrival();
  std::span<std::byte> RoomToRead();
  Step Parse();
  Step ParseHead();
  Step ParseChunks();
  void BeginBody();
  void Judge();  // sets early_error_ for what the head alone shows to be refused
  bool TakeBodyRoom(size_t bytes);
  HttpError NoRoom(const absl::Status& status);
  bool SendContinue();

  // Answering.
  void Answer();
  absl::Status Unpack();
  void StartInfer();
  absl::Status Decode(std::span<char> body, uint64_t json_bytes);
  uint64_t row_bytes() const;  // of the buffer for the outputs
  void StartControl();
  void Run() override;  // what may take its time: a load or unload, or the end of a call
  bool TakesLong() const;
  void TellAnswered();
  void EndCall();
  void NoteGone(uint32_t events);
  void GiveUpCall();
  void SendRows();
  void SendRefusal(const absl::Status& status);
  void SendError(HttpError error);
  void SendError(const absl::Status& status, std::optional<BadRequestReason> reason = {});
  void Refuse(HttpError error);  // ... and closes, since the request was not read to its end
  void SendApi(absl::StatusOr<ApiAnswer> answer);
  void Send(int code, std::string_view content_type, std::string_view extra_fields);

  // Writing.
  bool Pack(uint64_t bytes);
  bool WriteOn();
  void EndAnswer();
  void ReleaseRequest();
  void ReleaseInput();
  void EndRequest();
  void Linger();

  std::span<char> Body() const;
  uint64_t body_bytes_max() const;  // of the request

  HttpServer& server_;

  // A call is run when nobody drives any more: who runs it may go on with the lookups of others,
  // which its answer must not wait for.
  bool run_pending_ = false;
  Mutex calling_mutex_;
  bool is_calling_ HPS_GUARDED_BY(calling_mutex_) = false;  // the server has the call
  // While it is asked to end the call, nobody is told that it has: the call is not to be reset.
  bool is_giving_up_ HPS_GUARDED_BY(calling_mutex_) = false;
  bool answered_meanwhile_ HPS_GUARDED_BY(calling_mutex_) = false;

  State state_ = State::kClosed;
  bool readable_ = false;     // a read may find something
  bool ended_ = false;        // reads announce the end by themselves from now on
  bool close_ = false;        // after this answer
  bool cut_ = false;          // ... or instead of it
  bool unread_ = false;       // with some of the request not read
  size_t turn_requests_ = 0;  // that this turn of the driving thread has begun

  // The request: input_ holds its head first, then what was read after it.
  Phase phase_ = Phase::kHead;
  BufferPool::Lease input_;
  size_t input_size_ = 0;
  size_t head_bytes_ = 0;      // 0: not complete yet
  size_t body_end_ = 0;        // in input_: what belongs to the request ends here
  bool body_in_input_ = true;  // else in body_
  BufferPool::Lease body_;
  size_t body_size_ = 0;
  TimePoint arrival_{};
  Duration unread_wait_{};
  bool skipped_line_ = false;
  HeadEnd head_end_;
  RequestParser parser_;
  RequestHead head_;
  Route route_;
  std::optional<HttpError> early_error_;

  // The answer.
  InferDecoder decoder_;
  PackedBody unpacked_;
  PackedBody packed_;
  Admission::Reservation packed_share_;  // of the capacity, for that
  BufferPool::Lease rows_;
  bool takes_long_ = false;  // to encode or pack, so that it is not done by who looks up
  absl::Status call_status_;
  bool is_control_ = false;
  std::string text_;  // JSON
  ApiAnswer api_;
  std::string fields_;                              // status line and head
  std::vector<std::span<const std::byte>> pieces_;  // of the body
  std::vector<iovec> unsent_;
  size_t unsent_begin_ = 0;
};

}  // namespace hps::server
