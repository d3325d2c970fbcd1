// The fence: keeps an old promotion from overwriting a newer row (ARCHITECTURE.md, "The fence").
//
// A promotion copies a row that was fetched earlier. It would undo an update that happens between
// its fetch and its insertion. Therefore every promotion carries the apply epoch that was current
// before its first fetch, and every change first raises the watermarks of its keys to the epoch
// that it will publish. A promotion is admitted only if the watermark is not above its epoch.
//
//   applier:    E = epochs.Begin(); fence.Raise(keys, E); write L3; write L2; epochs.Publish(E);
//   promotion:  e = epochs.published(); fetch...;
//               Fence::Insertion insertion(fence, e); for each key: if (insertion.Admits(key)) ...
//
// Raise returns only when the insertions that began before it have ended, so no insertion that saw
// the old watermarks is still writing afterwards.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "hps/types.h"

namespace hps {

// The number of batches that an applier has applied to a table in this process. 0 = none.
using ApplyEpoch = uint64_t;

// One per table and process. Begin and Publish are for the table's applier; all threads may call
// the rest.
class ApplyEpochs {
 public:
  // Opens the next change. REQUIRES: none is open.
  ApplyEpoch Begin();
  // Closes the change: its writes are in L3 and in each part of L2, or the part is in quarantine.
  void Publish(ApplyEpoch epoch);

  ApplyEpoch published() const { return published_.load(std::memory_order_seq_cst); }
  // The newest change that is open or published.
  ApplyEpoch begun() const { return begun_.load(std::memory_order_seq_cst); }

 private:
  std::atomic<ApplyEpoch> begun_{0};
  std::atomic<ApplyEpoch> published_{0};
};

// The watermarks of one table in one level: a bounded array, indexed by key hash. A raised
// watermark may therefore also refuse a few unrelated keys, which costs a promotion but never a
// correct answer. Watermarks outlive eviction and clearing. Thread-safe.
class Fence {
 public:
  class Insertion;

  // Allocates max(kWatermarksMin, capacity / 64) watermarks of 8 bytes.
  explicit Fence(size_t row_capacity);

  // Raises the watermarks of `keys` to `epoch`, then waits for the insertions that began before.
  // Insertions that begin later don't delay it. Errors: DEADLINE_EXCEEDED: the watermarks may be
  // raised, but an insertion that saw the old ones may still be writing; the caller puts the level
  // into quarantine.
  absl::Status Raise(std::span<const Key> keys, ApplyEpoch epoch, Deadline deadline);

  size_t bytes() const { return count_ * sizeof(std::atomic<ApplyEpoch>); }

  static constexpr size_t kWatermarksMin = 4096;

 private:
  size_t IndexOf(Key key) const { return HashToRange(HashKey(key, kWatermarkHashSeed), count_); }

  absl::Status BeginRaise(ApplyEpoch epoch, Deadline deadline);
  absl::Status AwaitInsertions(ApplyEpoch epoch, Deadline deadline) HPS_REQUIRES(mutex_);
  // Waits for a change of the members below. False if the deadline passes first. May wake early.
  bool AwaitChange(Deadline deadline) HPS_REQUIRES(mutex_);

  const size_t count_;
  const std::unique_ptr<std::atomic<ApplyEpoch>[]> watermarks_;
  Mutex mutex_;
  CondVar changed_;
  bool raising_ HPS_GUARDED_BY(mutex_) = false;  // one Raise at a time
  // Running insertions, by the parity of the raise count at which they began. A Raise flips the
  // parity and waits for the other side to drain.
  std::array<size_t, 2> under_way_ HPS_GUARDED_BY(mutex_) = {0, 0};
  size_t parity_ HPS_GUARDED_BY(mutex_) = 0;
};

// One batch of promotions into the level; it ends when this object is destroyed.
class Fence::Insertion {
 public:
  // `epoch` is ApplyEpochs::published() as read before the first fetch of the rows.
  Insertion(Fence& fence, ApplyEpoch epoch);
  ~Insertion();
  Insertion(const Insertion&) = delete;
  Insertion& operator=(const Insertion&) = delete;

  bool Admits(Key key) const {
    return fence_.watermarks_[fence_.IndexOf(key)].load(std::memory_order_seq_cst) <= epoch_;
  }

 private:
  Fence& fence_;
  const ApplyEpoch epoch_;
  size_t parity_ = 0;
};

}  // namespace hps
