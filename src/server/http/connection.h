// One HTTP connection: reads a request, has it answered, writes the answer, and again.
//
// It is driven by events (its socket, an answered look-up, the clock), which any thread may bring:
// whoever brings one while nobody drives drives it as far as it goes without waiting; whoever comes
// while another drives leaves a note and goes. So requests of one connection are answered in order,
// no lock is held, and a look-up runs on the thread that read its request, which drives no more by
// then: whoever has the answer drives. The thread that ends a
// look-up writes the answer in place, but never begins the next request of that connection, which
// could lead back into look-ups: it leaves that to the server's own threads.
//
// Memory: an idle connection holds none but itself. A request takes an input buffer, room for its
// body when it does not fit there, and room for its rows, all from the server's pool.
//
// Thread-safe: Activate. All else belongs to whoever drives.
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
#include "server/http/connection_host.h"
#include "server/http/http_error.h"
#include "server/http/infer_request_codec.h"
#include "server/http/request_head.h"
#include "server/http/route.h"
#include "server/net/backlog.h"
#include "server/net/buffer_pool.h"
#include "server/net/transport.h"

namespace hps::server {

// A client that ends its sending while its request is looked up may be gone, or may still read the
// answer: for so long it is taken to read.
inline constexpr Duration kGoneTimeout = std::chrono::seconds(1);

class Connection final : public InferenceCall, private Task {
 public:
  // What has happened; bits.
  enum Event : uint32_t {
    kOpened = 2,     // Offer was called
    kReady = 4,      // the socket may be read, or written
    kHangup = 8,     // the client sends no more
    kAnswered = 16,  // the look-up or the slow task has ended
    kTick = 32,      // time has passed, or the server drains
    kCut = 64,       // close now
    kReset = 128,    // the client has gone
  };

  explicit Connection(ConnectionHost& host);
  ~Connection() override;

  // REQUIRES: new, or closed (ConnectionHost::OnClosed). Takes the socket, and its share of the
  // server's bytes, until it is closed; Activate(kOpened) follows.
  void Offer(int fd, TlsConnection tls, Admission::Reservation tls_bytes);

  // Its place among the sockets that wait to be read.
  Backlog::Entry& waiting() { return waiting_; }
  // Whether an event of the socket can only be that a request begins.
  bool is_idle() const { return idle_.load(std::memory_order_relaxed); }
  // ... the first one.
  bool is_new() const { return is_new_.load(std::memory_order_relaxed); }
  // The socket waits to be read: what its turn, which is Activate's, is to know besides. Of a
  // thread that does not drive it.
  void Leave(uint32_t events) { left_events_.fetch_or(events, std::memory_order_acq_rel); }
  void TakeTurn(TimePoint since);

  // `may_start`: this thread may begin requests, as the server's own threads may.
  void Activate(uint32_t events, bool may_start);

  // For the sweep: whether Activate(kTick) would find a time-out.
  bool IsLate(TimePoint now) const {
    return now.time_since_epoch().count() >= deadline_ns_.load(std::memory_order_relaxed);
  }

  void OnDone(const absl::Status& status) override;
  uint64_t AnswerBytes() const override;

 private:
  enum class State : uint8_t { kClosed, kReading, kCalling, kWriting, kLingering };
  enum class Phase : uint8_t { kHead, kBody, kChunks };
  enum class Step : uint8_t { kNeedsMore, kDone };  // kDone: the state or the phase has changed

  static constexpr uint32_t kDriven = 1;

  void Drive(bool may_start);
  void Handle(uint32_t events, bool may_start);
  void Advance(bool may_start);
  void OpenNow();
  void Close();
  bool HandleTick();
  void SetDeadline(TimePoint deadline);
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
  bool SendContinue();

  // Answering.
  void Answer();
  absl::Status Unpack();
  void StartInfer();
  absl::Status Decode(std::span<char> body, uint64_t json_bytes);
  uint64_t row_bytes() const;  // of the buffer for the outputs
  void StartControl();
  void Run() override;  // a load or unload, where it may take its time
  void EndCall();
  void NoteGone(uint32_t events);
  void GiveUpCall();
  void OnNoMemory();
  void SendRows();
  void SendRefusal(const absl::Status& status);
  void SendError(HttpError error);
  void SendError(const absl::Status& status, std::optional<BadRequestReason> reason = {});
  void Refuse(HttpError error);  // ... and closes, since the request was not read to its end
  void SendApi(absl::StatusOr<ApiAnswer> answer);
  void Send(int code, std::string_view content_type, std::string_view extra_fields);

  // Writing.
  bool WriteOn();
  void EndAnswer();
  void EndRequest();
  void Linger();

  std::span<char> Body() const;

  ConnectionHost& host_;
  std::atomic<uint32_t> events_ = 0;
  std::atomic<int64_t> deadline_ns_;
  Backlog::Entry waiting_{this};
  std::atomic<uint32_t> left_events_ = 0;
  std::atomic<int64_t> waits_since_ns_ = 0;  // the request that is read next; 0 = it does not
  std::atomic<bool> idle_ = false;
  std::atomic<bool> is_new_ = true;
  int offered_fd_ = -1;  // Offer's
  TlsConnection offered_tls_;
  Admission::Reservation tls_bytes_;

  // A call is run when nobody drives any more: who runs it may go on with the look-ups of others,
  // which its answer must not wait for.
  bool run_pending_ = false;
  Mutex calling_mutex_;
  bool is_calling_ HPS_GUARDED_BY(calling_mutex_) = false;  // the server has the call
  // While it is asked to end the call, nobody is told that it has: the call is not to be reset.
  bool is_giving_up_ HPS_GUARDED_BY(calling_mutex_) = false;
  bool answered_meanwhile_ HPS_GUARDED_BY(calling_mutex_) = false;

  Transport transport_;
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
  BufferPool::Lease rows_;
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
