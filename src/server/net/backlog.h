// What waits for its turn, and whose turn is next: sockets that have something to read, and calls
// that were read from a socket which brings many (gRPC).
//
// A request that is not read costs nothing: it stays in the system's memory, and the server can
// still choose between it and requests that come later. So a busy server leaves sockets here, and
// reads the next one when there is room: when what it reads will soon be looked up.
//
// While all requests can be answered in time, the oldest waiter is next. If its turn finds that it
// has waited too long (NoteRefused), the server is overloaded: in this order every request would be
// answered too late. From then on the newest waiter is next, because it can be answered in time.
// The oldest waiters get turns beside it, in which they are refused or, if their time-outs allow
// it, answered. These turns take at most one part in kOldestShare of the processor time of the
// others: otherwise refusing would take the place of answering. As soon as the oldest waiter is in
// time again, or nothing waits, the oldest waiter is next again.
//
// In the turns of the oldest, first requests of connections alternate with other requests. Probes
// are often first requests, so they are answered in a bounded time however many others wait.
//
// A connection in the middle of something (the rest of a request, room for the rest of an answer)
// waits only for a thread and needs no room. Its turn comes first as long as such turns take no
// more processor time than the others. These turns say nothing about the load.
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
    bool is_oldest = false;  // no other request that begins had waited longer
    bool is_beside = false;  // the turn is one of the share of the oldest
    uint64_t refusals_before = 0;
  };

  class Waiter {
   public:
    // Called on the thread that took the turn. Returns whether a request used it: otherwise the
    // turn says nothing about how long requests wait.
    virtual bool TakeTurn(const Turn& turn) = 0;

   protected:
    ~Waiter() = default;
  };

  Backlog() = default;
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // Adds the entry, which came at `since`, perhaps before others that wait. An entry that waits
  // already keeps its place, unless it becomes kInProgress now.
  void Push(Entry& entry, Kind kind, TimePoint since);
  // Returns whether the entry waited. If not, it was not added, or its turn is on its way.
  bool Remove(Entry& entry);

  // Removes the entry whose turn it is. `has_room`: what is read now is looked up soon. No turn if
  // nothing waits, or if there is no room and the share of the oldest is used up: then call Await.
  Turn Take(bool has_room);
  // As Take, but only among the entries that are kInProgress.
  Turn TakeBegun();
  // The turn has ended and took `processor_time`. `had_request`: what TakeTurn returned.
  void End(const Turn& turn, Duration processor_time, bool had_request);

  // A request was refused, or was too late, because the server has too much to do.
  void NoteRefused() {
    refusals_.fetch_add(1, std::memory_order_relaxed);
    overloaded_.store(true, std::memory_order_relaxed);
  }

  // Waits until `until`, or for WakeOne. After that the oldest get a turn even if their share is
  // used up.
  void Await(Deadline until);
  void WakeOne();

  size_t size() const { return size_.load(); }  // sequentially consistent for EventLoop::WakeOne
  bool is_overloaded() const { return overloaded_.load(std::memory_order_relaxed); }

 private:
  // Entries, nearly in the order in which they came: an entry that is added late is placed before
  // at most kStepsMax entries that came after it.
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
  // By how much the turns of begun_ have taken more processor time than the others, in nanoseconds.
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
