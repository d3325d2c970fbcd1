// The slots of a partition: which are free, and which will be once nobody can see them any more.
//
// Slots are taken, published to readers by someone else, taken back out of their sight and retired.
// A retired slot is lent again only when the guards that might see it have ended. Slots that were
// never used come last, so that memory is touched only when it is needed.
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
  // Slots 1 to ring.size(); `ring` is this pool's memory from now on. REQUIRES: at most kSlotsMax.
  SlotPool(std::span<SlotNumber> ring, EpochDomain& domain) : ring_(ring), domain_(domain) {}

  // kNoSlot when all are in use or still in sight of a reader.
  SlotNumber Take();

  // REQUIRES: a reader that begins now can't find `slot`.
  void Retire(SlotNumber slot);

  // Slots that have been used at some time: 1 to touched().
  uint32_t touched() const { return touched_; }

 private:
  struct Batch {
    uint64_t epoch = 0;  // at which ...
    uint64_t end = 0;    // ... the retired slots before this position are out of sight
  };

  void Reclaim();
  SlotNumber& At(uint64_t position) { return ring_[position % ring_.size()]; }

  static constexpr size_t kBatchesMax = 16;
  static constexpr uint64_t kRetiredWorthALook = 64;

  const std::span<SlotNumber> ring_;
  EpochDomain& domain_;
  uint32_t touched_ = 0;
  // Positions in an endless queue: [head, safe_end) may be lent, [safe_end, tail) is retired, and
  // of that what is before sealed_end belongs to a batch.
  uint64_t head_ = 0;
  uint64_t safe_end_ = 0;
  uint64_t sealed_end_ = 0;
  uint64_t tail_ = 0;
  std::array<Batch, kBatchesMax> batches_{};  // [batch_head, batch_tail), modulo the size
  uint64_t batch_head_ = 0;
  uint64_t batch_tail_ = 0;
};

}  // namespace hps
