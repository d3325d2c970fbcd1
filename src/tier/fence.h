// What keeps an old promotion from covering a newer row (ARCHITECTURE.md, "The fence").
//
// A promotion copies a row that was fetched earlier. An update that passes between its fetch and
// its insertion would be undone by it. So every promotion carries the apply epoch that was current
// before its first fetch, and every change first raises the watermarks of its keys to the epoch
// that it will publish: a promotion is admitted only where the watermark is not above its epoch.
//
//   applier:    E = epochs.Begin(); fence.Raise(keys, E); write L3; write L2; epochs.Publish(E);
//   promotion:  e = epochs.published(); fetch...;
//               Fence::Insertion insertion(fence, e); for each key: if (insertion.Admits(key)) ...
//
// Raise returns only when the insertions that began before it are done, so no insertion that saw
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

// Counts the batches that an applier has applied to a table in this process. 0 = none.
using ApplyEpoch = uint64_t;

// One per table and process. Begin and Publish are for the table's applier; the rest for everyone.
class ApplyEpochs {
 public:
  // Opens the next change. REQUIRES: none is open.
  ApplyEpoch Begin();
  // Closes it: what it wrote is in L3 and L2, or its shard is bypassed.
  void Publish(ApplyEpoch epoch);

  ApplyEpoch published() const { return published_.load(std::memory_order_seq_cst); }
  // The newest change that is open or done: what a failed shard must wait for.
  ApplyEpoch begun() const { return begun_.load(std::memory_order_seq_cst); }

 private:
  std::atomic<ApplyEpoch> begun_{0};
  std::atomic<ApplyEpoch> published_{0};
};

// The watermarks of one table in one level: a bounded array, indexed by key hash, so a raised
// watermark may also refuse a few innocent keys (that costs a promotion, never an answer).
// Thread-safe. Watermarks outlive eviction and clearing.
class Fence {
 public:
  class Insertion;

  // max(kWatermarksMin, capacity / 64) watermarks of 8 bytes.
  explicit Fence(size_t row_capacity);

  // Raises the watermarks of `keys` to `epoch`, then waits for the insertions that began before.
  // Insertions that begin later don't delay it.
  // Errors: DEADLINE_EXCEEDED; the watermarks may be raised, but an insertion that saw them as they
  // were may still be writing: the caller passes the shard by.
  absl::Status Raise(std::span<const Key> keys, ApplyEpoch epoch, Deadline deadline);

  size_t bytes() const { return count_ * sizeof(std::atomic<ApplyEpoch>); }

  static constexpr size_t kWatermarksMin = 4096;

 private:
  size_t IndexOf(Key key) const { return HashToRange(HashKey(key, kWatermarkHashSeed), count_); }

  absl::Status BeginRaise(ApplyEpoch epoch, Deadline deadline);
  absl::Status AwaitInsertions(ApplyEpoch epoch, Deadline deadline) HPS_REQUIRES(mutex_);
  // False when the deadline passes first. May wake early.
  bool AwaitChange(Deadline deadline) HPS_REQUIRES(mutex_);

  const size_t count_;
  const std::unique_ptr<std::atomic<ApplyEpoch>[]> watermarks_;
  Mutex mutex_;
  CondVar changed_;
  bool raising_ HPS_GUARDED_BY(mutex_) = false;  // one Raise at a time
  // Insertions under way, by the parity of the raise count at which they began: a Raise flips the
  // parity and waits for the other side to drain.
  std::array<size_t, 2> under_way_ HPS_GUARDED_BY(mutex_) = {0, 0};
  size_t parity_ HPS_GUARDED_BY(mutex_) = 0;
};

// One batch of promotions into the level; ends when it dies.
class Fence::Insertion {
 public:
  // `epoch` = ApplyEpochs::published() as read before the first fetch of the rows.
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

// Whether readers pass by a shard of a lossy level (for a device cache: a table on a device).
//
// A shard that failed or timed out may miss a change: a reader that went past it to L3 and saw the
// new row must not see the old one in the shard later. So passing by is a state: it ends when every
// change that was open or pending for the shard at the failure has been applied to it. Thread-safe.
class ShardBypass {
 public:
  // When a shard has a change: L2 when it is published, L1 only when it has been refreshed.
  enum class Applied { kWhenPublished, kWhenNoted };

  explicit ShardBypass(const ApplyEpochs& epochs, Applied applied = Applied::kWhenPublished)
      : epochs_(epochs), lags_(applied == Applied::kWhenNoted) {}

  // The shard failed now.
  void Trip();
  // The shard missed the change `epoch`: it is passed by until Clear.
  void TripUntilCleared() { until_.store(UINT64_MAX, std::memory_order_seq_cst); }
  // The shard is empty, hence up to date.
  void Clear() { until_.store(0, std::memory_order_seq_cst); }

  // A shard that lags has all changes up to `epoch`: it was refreshed, or began empty.
  void NoteApplied(ApplyEpoch epoch) { noted_.store(epoch, std::memory_order_seq_cst); }

  bool bypassed() const {
    const ApplyEpoch until = until_.load(std::memory_order_seq_cst);
    if (until == 0) return false;
    return (lags_ ? noted_.load(std::memory_order_seq_cst) : epochs_.published()) < until;
  }

 private:
  const ApplyEpochs& epochs_;
  const bool lags_;
  std::atomic<ApplyEpoch> until_{0};
  std::atomic<ApplyEpoch> noted_{0};
};

}  // namespace hps
