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
// A Reader is a place in the domain; it is made once (per thread, session or task), not per call.
// Guards of one Reader must not nest or run concurrently. Thread-safe otherwise.
// Source of the algorithm: K. Fraser, "Practical lock-freedom", 2004, section 5.2.3.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/macros.h"
#include "base/mutex.h"

namespace hps {

class EpochDomain {
 public:
  class Reader;
  class Guard;

  // Room for `readers_max` readers, 64 bytes each.
  explicit EpochDomain(size_t readers_max = kReadersMax)
      : readers_max_(readers_max), places_(new Place[readers_max]) {}
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  // Errors: RESOURCE_EXHAUSTED when `readers_max` readers exist.
  absl::StatusOr<Reader> AddReader();

  // Steps the epoch and returns its new number: what was unlinked before the call is invisible to
  // every guard that begins after it. Costs one atomic addition.
  uint64_t Advance() { return epoch_.fetch_add(1, std::memory_order_seq_cst) + 1; }

  // The greatest epoch e such that no guard that began before Advance returned e is still held.
  // Costs one look at each place in use.
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

  // After BeginWaiting either SafeEpoch sees the end of a guard, or who ended it sees the waiting.
  void BeginWaiting() { waiting_count_.fetch_add(1, std::memory_order_acq_rel); }
  void EndWaiting(size_t count) { waiting_count_.fetch_sub(count, std::memory_order_acq_rel); }

  // For those who held a guard, after its end; costs one atomic addition when nobody waits.
  void AnnounceEnd() {
    if (waiting_count_.fetch_add(0, std::memory_order_acq_rel) != 0) TellWaiters();
  }

  size_t bytes() const { return readers_max_ * sizeof(Place); }

  static constexpr size_t kReadersMax = 4096;

 private:
  struct alignas(64) Place {
    std::atomic<uint64_t> entered{0};  // 0 = no guard held
    std::atomic<bool> taken{false};
  };

  void TellWaiters();

  std::atomic<uint64_t> epoch_{1};
  std::atomic<size_t> places_used_{0};  // places at and after this were never taken
  const size_t readers_max_;
  const std::unique_ptr<Place[]> places_;
  // Read-modify-write on both sides, so that one of the two always sees the other.
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

}  // namespace hps
