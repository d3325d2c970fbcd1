// Epoch-based reclamation: readers pass without waiting, and what they might still see is freed
// only after they have left.
//
// A reader enters the domain for the time of one guard; a writer that has unlinked something asks
// for the epoch at which nobody can see it any more:
//
//   writer: unlink(x); const uint64_t retired = domain.Advance(); ...
//           if (domain.SafeEpoch() >= retired) free(x);
//   reader: EpochDomain::Guard guard(reader); use(x);
//
// A Reader owns one place in the domain; it is made once per thread, session or task, not per call.
// Guards of one Reader must not nest or run concurrently. Thread-safe otherwise.
// Source of the algorithm: K. Fraser, "Practical lock-freedom", 2004, section 5.2.3.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/mutex.h"

namespace hps {

class EpochDomain {
 public:
  class Reader;
  class Guard;

  // At most `readers_max` readers, 64 bytes each. Memory for the first kBlockPlaces is allocated
  // here, more by AddReader when it is needed.
  explicit EpochDomain(size_t readers_max = kEpochReadersMax);
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  // Takes a mutex; allocates where the domain grows.
  // Errors: RESOURCE_EXHAUSTED when `readers_max` readers exist.
  absl::StatusOr<Reader> AddReader();

  // Steps the epoch and returns its new number: what was unlinked before the call is invisible to
  // every guard that begins after it. Costs one atomic addition.
  uint64_t Advance() { return epoch_.fetch_add(1, std::memory_order_seq_cst) + 1; }

  // The greatest epoch e such that no guard that began before Advance returned e is still held.
  // Reads one cache line for each place that was ever in use.
  uint64_t SafeEpoch() const;

  // Someone who waits for guards to end without looking at them again and again.
  class Waiter {
   public:
    // A guard has ended; others may be held still. Called on the thread that held it.
    virtual void OnGuardEnded() = 0;

   protected:
    ~Waiter() = default;
  };

  // The waiter is told of ends from here on until it is removed, but only while at least one
  // BeginWaiting has no EndWaiting. It must not add or remove waiters when it is told.
  void AddWaiter(Waiter* waiter);
  void RemoveWaiter(Waiter* waiter);

  // After BeginWaiting, either SafeEpoch sees the end of a guard, or Reader::LeaveAndAnnounce sees
  // the waiting: each side stores first and loads then, all of it sequentially consistent.
  void BeginWaiting() { waiting_count_.fetch_add(1, std::memory_order_seq_cst); }
  void EndWaiting(size_t count) { waiting_count_.fetch_sub(count, std::memory_order_acq_rel); }

  // Bytes that are allocated for places.
  size_t bytes() const;

  static constexpr size_t kBlockPlaces = 4096;

 private:
  struct alignas(64) Place {
    std::atomic<uint64_t> entered{0};  // 0 = no guard held
  };

  void TellWaiters();

  Place& place(size_t index) const {
    return blocks_[index / kBlockPlaces].load(std::memory_order_acquire)[index % kBlockPlaces];
  }
  size_t PlacesOfBlock(size_t block) const;
  void AddBlock(size_t block) HPS_REQUIRES(readers_mutex_);

  std::atomic<uint64_t> epoch_{1};
  std::atomic<size_t> places_used_{0};  // places at and after this were never taken
  const size_t readers_max_;
  const size_t block_count_;
  // [block_count_]; a block that is set stays.
  const std::unique_ptr<std::atomic<Place*>[]> blocks_;
  Mutex readers_mutex_;
  std::vector<std::unique_ptr<Place[]>> block_memory_ HPS_GUARDED_BY(readers_mutex_);
  std::vector<Place*> free_ HPS_GUARDED_BY(readers_mutex_);  // were taken before
  std::atomic<size_t> waiting_count_{0};
  Mutex waiters_mutex_;
  std::vector<Waiter*> waiters_ HPS_GUARDED_BY(waiters_mutex_);
};

// A place in a domain; movable; gives the place back when it dies.
class EpochDomain::Reader {
 public:
  Reader() = default;
  Reader(Reader&& other) noexcept : domain_(other.domain_), place_(other.place_) {
    other.domain_ = nullptr;
    other.place_ = nullptr;
  }
  Reader& operator=(Reader&& other) noexcept;
  ~Reader() { Release(); }

  // Enter and Leave are what Guard does; for holders that are no scope, such as a queued task.
  void Enter();
  void Leave();
  // Leave, and tell the domain's waiters if there are any. Without waiters it writes no memory that
  // other cores use.
  void LeaveAndAnnounce();
  bool entered() const { return place_->entered.load(std::memory_order_relaxed) != 0; }

 private:
  friend class EpochDomain;
  Reader(EpochDomain* domain, Place* place) : domain_(domain), place_(place) {}
  void Release();

  EpochDomain* domain_ = nullptr;
  Place* place_ = nullptr;
};

class EpochDomain::Guard {
 public:
  explicit Guard(Reader& reader) : reader_(reader) { reader_.Enter(); }
  ~Guard() { reader_.Leave(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Reader& reader_;
};

inline void EpochDomain::Reader::Enter() {
  HPS_DCHECK(!entered());
  // Sequentially consistent, so that a SafeEpoch that overlooks this guard came before it, and what
  // was unlinked before that call is unlinked for the guard. For this the guard's first load of a
  // shared pointer must be sequentially consistent too (free on x86). An epoch that is old by the
  // time of the exchange only delays a reclamation.
  place_->entered.exchange(domain_->epoch_.load(std::memory_order_seq_cst),
                           std::memory_order_seq_cst);
}

inline void EpochDomain::Reader::Leave() { place_->entered.store(0, std::memory_order_release); }

inline void EpochDomain::Reader::LeaveAndAnnounce() {
  place_->entered.store(0, std::memory_order_seq_cst);
  if (domain_->waiting_count_.load(std::memory_order_seq_cst) != 0) domain_->TellWaiters();
}

}  // namespace hps
