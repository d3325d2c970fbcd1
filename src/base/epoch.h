// Epoch-based reclamation: readers never wait, and a writer frees memory only after every reader
// that might see it has left.
//
// A reader enters the domain for the lifetime of a guard. A writer that has unlinked an object asks
// for the epoch from which no reader can see it:
//
//   writer: unlink(x); const uint64_t retired = domain.Advance(); ...
//           if (domain.SafeEpoch() >= retired) free(x);
//   reader: EpochDomain::Guard guard(reader); use(x);
//
// A Reader owns one place in the domain; it is made once per thread, session or task, not per call.
// Guards of one Reader must not nest or run concurrently. Otherwise thread-safe.
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

  // At most `readers_max` readers, 64 bytes each. Allocates the first kBlockPlaces places;
  // AddReader allocates more when needed.
  explicit EpochDomain(size_t readers_max = kEpochReadersMax);
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  // Takes a mutex; allocates if the domain must grow. Errors: RESOURCE_EXHAUSTED if `readers_max`
  // readers exist.
  absl::StatusOr<Reader> AddReader();

  // Advances the epoch and returns the new number: objects unlinked before the call are invisible
  // to every guard that begins after it. Costs one atomic addition.
  uint64_t Advance() { return epoch_.fetch_add(1, std::memory_order_seq_cst) + 1; }

  // The greatest epoch e such that no guard that began before Advance returned e is still held.
  // Reads one cache line per place ever used.
  uint64_t SafeEpoch() const;

  // Waits for the end of guards without polling them.
  class Waiter {
   public:
    // A guard has ended; others may still be held. Called on the thread that held it.
    virtual void OnGuardEnded() = 0;

   protected:
    ~Waiter() = default;
  };

  // The waiter is called for every end of a guard until it is removed, but only while some
  // BeginWaiting has no matching EndWaiting. It must not add or remove waiters in the call.
  void AddWaiter(Waiter* waiter);
  void RemoveWaiter(Waiter* waiter);

  // After BeginWaiting, either SafeEpoch sees the end of a guard, or Reader::LeaveAndAnnounce sees
  // the waiting: each side first stores, then loads, all sequentially consistent.
  void BeginWaiting() { waiting_count_.fetch_add(1, std::memory_order_seq_cst); }
  void EndWaiting(size_t count) { waiting_count_.fetch_sub(count, std::memory_order_acq_rel); }

  // Bytes allocated for places.
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
  std::atomic<size_t> places_used_{0};  // places from here on were never used
  const size_t readers_max_;
  const size_t block_count_;
  // [block_count_]; a block that is set stays.
  const std::unique_ptr<std::atomic<Place*>[]> blocks_;
  Mutex readers_mutex_;
  std::vector<std::unique_ptr<Place[]>> block_memory_ HPS_GUARDED_BY(readers_mutex_);
  std::vector<Place*> free_ HPS_GUARDED_BY(readers_mutex_);  // places that were used before
  std::atomic<size_t> waiting_count_{0};
  Mutex waiters_mutex_;
  std::vector<Waiter*> waiters_ HPS_GUARDED_BY(waiters_mutex_);
};

// A place in a domain; movable; its destructor returns the place.
class EpochDomain::Reader {
 public:
  Reader() = default;

  // Enter and Leave do what Guard does, for users that are not a scope, such as a queued task.
  void Enter();
  void Leave();
  // Leaves, and notifies the domain's waiters if there are any. Without waiters it writes no cache
  // line that other cores use.
  void LeaveAndAnnounce();
  bool entered() const { return place_->entered.load(std::memory_order_relaxed) != 0; }

 private:
  friend class EpochDomain;
  struct ReturnPlace {
    EpochDomain* domain;
    void operator()(Place* place) const;  // REQUIRES: not entered
  };
  Reader(EpochDomain* domain, Place* place) : place_(place, {domain}) {}
  EpochDomain& domain() const { return *place_.get_deleter().domain; }

  std::unique_ptr<Place, ReturnPlace> place_;
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
  // Sequentially consistent: a SafeEpoch that does not see this guard came before it, so objects
  // unlinked before that call are already unlinked for the guard. This requires that the guard's
  // first load of a shared pointer is sequentially consistent too (free on x86). If the epoch is
  // old at the exchange, reclamation is only delayed.
  place_->entered.exchange(domain().epoch_.load(std::memory_order_seq_cst),
                           std::memory_order_seq_cst);
}

inline void EpochDomain::Reader::Leave() { place_->entered.store(0, std::memory_order_release); }

inline void EpochDomain::Reader::LeaveAndAnnounce() {
  place_->entered.store(0, std::memory_order_seq_cst);
  if (domain().waiting_count_.load(std::memory_order_seq_cst) != 0) domain().TellWaiters();
}

}  // namespace hps
