// What waits for its turn, and whose turn is next: sockets that have something to read, and calls
// that were read from a socket which brings many (gRPC).
//
// A request that is not read costs nothing: it stays in the system's memory, and when there is time
// for it one can still choose between it and those that came later. So a server that is busy leaves
// sockets here, and reads one when what it has read before is about to be answered ("room").
//
// While all can be answered in time, the one that has waited longest is next. When that one turns
// out to have waited too long, which its turn finds and NoteRefused tells, the server is
// overloaded: in that order every request would be answered too late. From then on the newest is
// next, which can be answered in time. Those that wait longest get turns beside it, in which they
// are refused or, where they have the patience, answered; but no more processor time than
// kOldestShare of what the others take: else refusing would take the place of answering. As
// soon as the one that has waited longest is in time again, or none waits, the old order is back.
//
// The first request of a connection has a place of its own among the oldest: probes often come so,
// and are answered in a bounded time however many wait.
//
// A connection in the middle of something (the rest of a request, room for the rest of an answer)
// waits only for a thread. It has its turn whether there is room or not, as long as such turns take
// no more processor time than the others; they say nothing about the load.
//
// Thread-safe; one lock, for a few instructions. It allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace hps::server {

class Backlog {
 public:
  static constexpr int kOldestShare = 24;  // one part in so many

  enum class Kind : uint8_t {
    kInProgress,  // goes on
    kFirst,       // begins, as the first one of its connection
    kLater,
  };
  class Waiter;

  // A place in the backlog. It is a member of the waiter, which outlives the backlog or is removed
  // from it; only the backlog changes it.
  struct Entry {
    explicit Entry(Waiter* source) : waiter(source) {}

    Waiter* const waiter;
    TimePoint since{};  // when it came
    Kind kind = Kind::kLater;
    bool waits = false;
    Entry* next = nullptr;
    Entry* previous = nullptr;
  };

  struct Turn {
    Entry* entry = nullptr;  // null: no turn
    TimePoint since{};       // when the entry came
    Kind kind = Kind::kLater;
    bool is_oldest = false;  // it was the one that had waited longest
    bool is_beside = false;  // ... and had its turn from its share
    uint64_t refusals_before = 0;
  };

  class Waiter {
   public:
    // On the thread that took the turn. Whether a request had it: another turn says nothing about
    // how long requests wait.
    virtual bool TakeTurn(const Turn& turn) = 0;

   protected:
    ~Waiter() = default;
  };

  Backlog() = default;
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // It came at `since`, perhaps before others that wait. Keeps its place when it waits already, but
  // for what goes on now.
  void Push(Entry& entry, Kind kind, TimePoint since);
  // Whether it waited: else it does not, or its turn is on its way.
  bool Remove(Entry& entry);

  // Whose turn it is. `has_room`: what is read now is looked up soon. No turn if nothing waits, or
  // if there is no room and the share of the oldest is used up: then Await.
  Turn Take(bool has_room);
  // ... of those alone that go on.
  Turn TakeBegun();
  // ... has ended, and took so much processor time.
  void End(const Turn& turn, Duration processor_time, bool had_request);

  // A request was refused, or was too late, because the server has too much to do.
  void NoteRefused() {
    refusals_.fetch_add(1, std::memory_order_relaxed);
    overloaded_.store(true, std::memory_order_relaxed);
  }

  // Waits until `until`, or for WakeOne; then the oldest have another turn in any case.
  void Await(Deadline until);
  void WakeOne();

  size_t size() const { return size_.load(); }  // in one order with EventLoop::WakeOne
  bool is_overloaded() const { return overloaded_.load(std::memory_order_relaxed); }

 private:
  // In the order in which they came, nearly: one that is told of late goes before at most
  // kStepsMax that came after it.
  class List {
   public:
    void Push(Entry& entry);
    void Remove(Entry& entry);
    Entry* oldest() const { return first_; }
    Entry* newest() const { return last_; }

   private:
    static constexpr int kStepsMax = 64;

    Entry* first_ = nullptr;
    Entry* last_ = nullptr;
  };

  Entry* Oldest() const HPS_REQUIRES(mutex_);
  Entry* PickReserved() HPS_REQUIRES(mutex_);
  Entry* Newest() const HPS_REQUIRES(mutex_);
  Turn Choose(bool has_room) HPS_REQUIRES(mutex_);
  Turn TakeOut(Turn turn) HPS_REQUIRES(mutex_);
  List& ListOf(Kind kind) HPS_REQUIRES(mutex_);
  void TakeOut(Entry& entry) HPS_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar woken_;
  List begun_ HPS_GUARDED_BY(mutex_);
  List first_ HPS_GUARDED_BY(mutex_);  // first requests of their connections
  List later_ HPS_GUARDED_BY(mutex_);
  // What those that go on have taken more than the others, in nanoseconds.
  int64_t begun_ns_ HPS_GUARDED_BY(mutex_) = 0;
  bool first_had_turn_ HPS_GUARDED_BY(mutex_) = false;
  // What the oldest may take yet, in nanoseconds; below zero after a turn that took more.
  int64_t oldest_ns_ HPS_GUARDED_BY(mutex_) = 0;
  bool has_waited_ HPS_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> size_ = 0;
  std::atomic<size_t> awaiting_ = 0;
  std::atomic<uint64_t> refusals_ = 0;
  std::atomic<bool> overloaded_ = false;
};

}  // namespace hps::server
