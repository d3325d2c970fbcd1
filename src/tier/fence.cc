#include "tier/fence.h"

#include <algorithm>

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

void Fence::Raise(std::span<const Key> keys, ApplyEpoch epoch) {
  MutexLock raising(raise_mutex_);
  for (Key key : keys) {
    std::atomic<ApplyEpoch>& watermark = watermarks_[IndexOf(key)];
    // Raises are serialized, so there is no other writer to lose to.
    if (watermark.load(std::memory_order_relaxed) < epoch)
      watermark.store(epoch, std::memory_order_seq_cst);
  }
  MutexLock lock(mutex_);
  const size_t before = parity_;
  parity_ = 1 - parity_;
  while (under_way_[before] > 0) insertion_ended_.Wait(mutex_);
}

Fence::Insertion::Insertion(Fence& fence, ApplyEpoch epoch) : fence_(fence), epoch_(epoch) {
  MutexLock lock(fence_.mutex_);
  parity_ = fence_.parity_;
  ++fence_.under_way_[parity_];
}

Fence::Insertion::~Insertion() {
  MutexLock lock(fence_.mutex_);
  if (--fence_.under_way_[parity_] == 0) fence_.insertion_ended_.NotifyAll();
}

void ShardBypass::Trip() {
  const ApplyEpoch open = epochs_.begun();
  ApplyEpoch until = until_.load(std::memory_order_seq_cst);
  while (until < open && !until_.compare_exchange_weak(until, open)) {
  }
}

}  // namespace hps
