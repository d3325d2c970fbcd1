#include "l2_memory/slot_pool.h"

#include "base/macros.h"

namespace hps {

SlotNumber SlotPool::Take() {
  if (head_ == safe_end_ && tail_ - safe_end_ >= kRetiredWorthALook) Reclaim();
  if (head_ == safe_end_) {
    if (touched_ < ring_.size()) return static_cast<SlotNumber>(++touched_);
    Reclaim();
    if (head_ == safe_end_) return kNoSlot;
  }
  return At(head_++);
}

void SlotPool::Retire(SlotNumber slot) {
  HPS_DCHECK(slot != kNoSlot && slot <= touched_ && tail_ - head_ < ring_.size());
  At(tail_++) = slot;
}

void SlotPool::Reclaim() {
  if (tail_ > sealed_end_) {
    // If all batches are in use the newest one grows: its slots wait for a later epoch than
    // necessary, which is safe.
    if (batch_tail_ - batch_head_ == kBatchesMax) --batch_tail_;
    batches_[batch_tail_++ % kBatchesMax] = {domain_.Advance(), tail_};
    sealed_end_ = tail_;
  }
  if (batch_head_ == batch_tail_) return;
  const uint64_t safe = domain_.SafeEpoch();
  while (batch_head_ < batch_tail_ && batches_[batch_head_ % kBatchesMax].epoch <= safe)
    safe_end_ = batches_[batch_head_++ % kBatchesMax].end;
}

}  // namespace hps
