#include "tier/fence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

ApplyEpoch ApplyEpochs::Begin() {
  const ApplyEpoch epoch = published() + 1;
  HPS_CHECK(begun() + 1 == epoch);
  begun_.store(epoch, std::memory_order_seq_cst);
  return epoch;
}

void ApplyEpochs::Publish(ApplyEpoch epoch) {
  HPS_CHECK(begun() == epoch && published() + 1 == epoch);
  published_.store(epoch, std::memory_order_seq_cst);
}

Fence::Fence(size_t row_capacity)
    : count_(std::max(kWatermarksMin, row_capacity / 64)),
      watermarks_(new std::atomic<ApplyEpoch>[count_]()) {}

absl::Status Fence::Raise(std::span<const Key> keys, ApplyEpoch epoch, Deadline deadline) {
  HPS_RETURN_IF_ERROR(BeginRaise(epoch, deadline));
  for (Key key : keys) {
    std::atomic<ApplyEpoch>& watermark = watermarks_[IndexOf(key)];
    // Raises are serialized, so no other thread writes this watermark.
    if (watermark.load(std::memory_order_relaxed) < epoch)
      watermark.store(epoch, std::memory_order_seq_cst);
  }
  MutexLock lock(mutex_);
  const absl::Status done = AwaitInsertions(epoch, deadline);
  raising_ = false;
  changed_.NotifyAll();
  return done;
}

absl::Status Fence::BeginRaise(ApplyEpoch epoch, Deadline deadline) {
  MutexLock lock(mutex_);
  while (raising_) {
    if (AwaitChange(deadline)) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("fence: deadline exceeded raising the watermarks of change ", epoch,
                     ": another raise is running"));
  }
  raising_ = true;
  return absl::OkStatus();
}

absl::Status Fence::AwaitInsertions(ApplyEpoch epoch, Deadline deadline) {
  // Insertions that an earlier, timed-out Raise did not wait for may remain on the inactive side.
  // Wait for them before that side becomes the one that new insertions join.
  for (const bool flip : {true, false}) {
    const size_t leaving = 1 - parity_;
    while (under_way_[leaving] > 0) {
      if (AwaitChange(deadline)) continue;
      return absl::DeadlineExceededError(
          absl::StrCat("fence: deadline exceeded: ", under_way_[leaving],
                       " insertions from before change ", epoch, " are still running"));
    }
    if (flip) parity_ = leaving;
  }
  return absl::OkStatus();
}

bool Fence::AwaitChange(Deadline deadline) {
  if (deadline != kNoDeadline) return changed_.WaitUntil(mutex_, deadline);
  changed_.Wait(mutex_);
  return true;
}

Fence::Insertion::Insertion(Fence& fence, ApplyEpoch epoch) : fence_(fence), epoch_(epoch) {
  MutexLock lock(fence_.mutex_);
  parity_ = fence_.parity_;
  ++fence_.under_way_[parity_];
}

Fence::Insertion::~Insertion() {
  MutexLock lock(fence_.mutex_);
  if (--fence_.under_way_[parity_] == 0) fence_.changed_.NotifyAll();
}

}  // namespace hps
