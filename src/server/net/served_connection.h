// One connection as its server sees it: its events, its place among the sockets that wait to be
// read, and the time at which something of it is due.
//
// Events (of its socket, of the clock, of calls that have ended) come on any thread and are
// combined in an atomic mask. The first thread that sets a bit drives the connection: it handles
// events until it would have to wait. Other threads set their bit and return. So a protocol needs
// no lock for what belongs to its connection. A thread that has a call to look up stops driving and
// runs the lookup. The thread that ends the lookup drives the connection and writes the answer, but
// begins no other request of the connection, because that could lead back into lookups. Only the
// server's own threads begin requests.
//
// Thread-safe: the public part. What a protocol adds belongs to the thread that drives.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"
#include "server/net/backlog.h"
#include "server/net/tls.h"
#include "server/net/transport.h"

namespace hps::server {

class ConnectionServer;

class ServedConnection : public Backlog::Waiter {
 public:
  // What has happened; bits.
  enum Event : uint32_t {
    kOpened = 2,     // Offer was called
    kReady = 4,      // the socket may be read, or written
    kHangup = 8,     // the client sends no more
    kAnswered = 16,  // a call or a slow task has ended
    kTick = 32,      // time has passed, or the server drains
    kCut = 64,       // close now
    kReset = 128,    // the client has gone
    kTurn = 256,     // a request that begins now has its turn
  };

  ServedConnection(const ServedConnection&) = delete;
  ServedConnection& operator=(const ServedConnection&) = delete;
  virtual ~ServedConnection() = default;

  // REQUIRES: new, or closed (ConnectionServer::OnClosed). Takes the socket, and its share of the
  // server's bytes, until it is closed; Activate(kOpened) follows.
  void Offer(int fd, TlsConnection tls, Admission::Reservation tls_bytes);

  // `may_start`: this thread may begin lookups, as the server's own threads may.
  void Activate(uint32_t events, bool may_start);

  // Whether the connection's deadline has passed, so that the sweep of the server must call
  // Activate(kTick).
  bool IsLate(TimePoint now) const {
    return now.time_since_epoch().count() >= deadline_ns_.load(std::memory_order_relaxed);
  }

  // Its place among the sockets that wait to be read.
  Backlog::Entry& waiting() { return waiting_; }
  // Whether an event of the socket can wait, because it begins a request at most.
  bool is_idle() const { return idle_.load(std::memory_order_relaxed); }
  // Whether that request would be the first one of the connection.
  bool is_new() const { return is_new_.load(std::memory_order_relaxed); }
  // Whether so many bytes at least wait in the socket. Any thread.
  bool HasUnread(size_t bytes) const;
  // The socket is left in the backlog: TakeTurn will pass these events to Activate. May be called
  // by a thread that does not drive the connection.
  void NoteLeft(uint32_t events) { left_events_.fetch_or(events, std::memory_order_acq_rel); }
  bool TakeTurn(const Backlog::Turn& turn) override;

 protected:
  explicit ServedConnection(ConnectionServer& server);

  // ---- What a protocol does; called by the thread that drives.

  // The first event of a turn is about to be handled.
  virtual void BeginTurn() = 0;
  virtual void Handle(uint32_t events, bool may_start) = 0;
  // An allocation failed in it.
  virtual void OnNoMemory() = 0;
  // Returns the call that this thread looks up when it has stopped driving; null: none.
  virtual InferenceCall* TakeCall(bool may_start) = 0;
  // The thread has to go on driving: TakeCall must return this call again.
  virtual void PutBack(InferenceCall& call) = 0;
  // More calls wait for a thread.
  virtual bool has_calls() const = 0;
  virtual bool IsIdle() const = 0;
  // Events came while another thread drives. Any thread.
  virtual void OnDrivenElsewhere(uint32_t events) = 0;

  // ---- For the protocol; called by the thread that drives, except Note.

  // Sets the bits of the events. True: no thread drives, so the caller must call Drive.
  bool Note(uint32_t events);
  void Drive(bool may_start);

  // Takes the socket that was offered.
  void OpenTransport();
  // Watches it. False: there is no place for it.
  bool Watch();
  // One of the server's threads drives it, soon.
  void Wake();
  // The protocol's work on this connection has ended and its socket is closed. The object may be
  // opened with another socket as soon as no thread drives it.
  void EndConnection();

  void SetDeadline(TimePoint deadline) {
    deadline_ns_.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
  }
  bool has_deadline() const {
    return deadline_ns_.load(std::memory_order_relaxed) != kNoDeadline.time_since_epoch().count();
  }
  // Sets the deadline, unless it is earlier already.
  void NoteDeadline(TimePoint deadline) {
    if (!IsLate(deadline)) SetDeadline(deadline);
  }

  // Returns since when the bytes that are read next have waited; `now` if they did not wait. Once
  // for each turn.
  TimePoint TakeArrival(TimePoint now);
  void ForgetArrival() { waits_since_ns_.store(0, std::memory_order_relaxed); }
  // A request begins.
  void UseTurn() { has_used_turn_.store(true, std::memory_order_relaxed); }
  void set_is_new(bool is_new) { is_new_.store(is_new, std::memory_order_relaxed); }

  Transport transport_;

 private:
  static constexpr uint32_t kDriven = 1;

  uint32_t OwnEvents(uint32_t events) const;

  ConnectionServer& connection_server_;
  std::atomic<uint32_t> events_ = 0;
  std::atomic<int64_t> deadline_ns_;
  Backlog::Entry waiting_{this};
  std::atomic<uint32_t> left_events_ = 0;
  std::atomic<int64_t> waits_since_ns_ = 0;  // what is read next; 0 = it does not
  std::atomic<bool> idle_ = false;
  std::atomic<bool> is_new_ = true;
  std::atomic<bool> has_used_turn_ = false;
  std::atomic<int> socket_ = -1;  // for HasUnread
  struct {
    std::atomic<int64_t> since_ns = 0;
    int fd = -1;  // until it is opened
    TlsConnection tls;
  } offered_;
  Admission::Reservation tls_bytes_;
  bool is_closed_ = false;  // to be told to the server when no thread drives any more
};

}  // namespace hps::server
