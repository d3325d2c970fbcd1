// The slots of a partition: which are free, and which will be free once no reader can see them.
//
// The partition takes a slot, publishes it to readers, unpublishes it and retires it. A retired
// slot is reused only when the guards that might see it have ended. Slots that were never used are
// taken last, so that memory is touched only when needed.
//
// Not thread-safe: the partition's lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/epoch.h"
#include "l2_memory/index_line.h"

namespace hps {

class SlotPool {
 public:
  // Slots 1 to ring.size(); the pool owns the memory of `ring` from now on. REQUIRES: at most
  // kSlotsMax.
  SlotPool(std::span<SlotNumber> ring, EpochDomain& domain) : ring_(ring), domain_(domain) {}

  // kNoSlot if all slots are in use or may still be seen by a reader.
  SlotNumber Take();

  // REQUIRES: a reader that begins now can't find `slot`.
  void Retire(SlotNumber slot);

  // Slots that were ever used: 1 to touched().
  uint32_t touched() const { return touched_; }

 private:
  struct Batch {
    uint64_t epoch = 0;  // when this epoch is safe ...
    uint64_t end = 0;    // ... the retired slots before this position may be reused
  };

  void Reclaim();
  SlotNumber& At(uint64_t position) { return ring_[position % ring_.size()]; }

  static constexpr size_t kBatchesMax = 16;
  static constexpr uint64_t kRetiredWorthALook = 64;

  const std::span<SlotNumber> ring_;
  EpochDomain& domain_;
  uint32_t touched_ = 0;
  // Positions in an endless queue: [head, safe_end) may be reused, [safe_end, tail) is retired.
  // Retired positions before sealed_end belong to a batch.
  uint64_t head_ = 0;
  uint64_t safe_end_ = 0;
  uint64_t sealed_end_ = 0;
  uint64_t tail_ = 0;
  std::array<Batch, kBatchesMax> batches_{};  // [batch_head, batch_tail), modulo the size
  uint64_t batch_head_ = 0;
  uint64_t batch_tail_ = 0;
};

}  // namespace hps
