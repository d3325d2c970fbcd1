// The slots of a partition: which are free, and which will be once nobody can see them any more.
//
// Slots are taken, published to readers by someone else, taken back out of their sight and retired.
// A retired slot is lent again only when the guards that might see it have ended. Slots come in
// groups; who takes one may name the group that it would like it from. Without a wish the lowest
// free slot is lent, so that memory is touched only when it is needed.
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

// Slot i (from 0) of group g has the number (g << bits) + i + 1. All groups have `slots` slots, but
// for the last one, which has what is left of `slot_count`.
struct SlotGroups {
  uint32_t bits = 0;
  uint32_t slots = 0;  // at most 64
  uint32_t slot_count = 0;

  constexpr uint32_t count() const { return (slot_count + slots - 1) / slots; }
  constexpr uint32_t GroupOf(SlotNumber slot) const { return (slot - 1u) >> bits; }
  constexpr uint32_t InGroup(SlotNumber slot) const { return (slot - 1u) & ((1u << bits) - 1); }
  // Its place among all slots, from 0, without gaps.
  constexpr uint32_t IndexOf(SlotNumber slot) const {
    return GroupOf(slot) * slots + InGroup(slot);
  }
  constexpr SlotNumber Number(uint32_t group, uint32_t in_group) const {
    return static_cast<SlotNumber>((group << bits) + in_group + 1);
  }
};

class SlotPool {
 public:
  // This pool's memory from now on, all zero.
  struct Memory {
    std::span<SlotNumber> ring;  // one for each slot
    std::span<uint64_t> words;   // WordsFor
  };
  static constexpr size_t WordsFor(const SlotGroups& groups) {
    return groups.count() + SummaryWords(groups);
  }

  // REQUIRES: slot numbers are at most kSlotsMax.
  SlotPool(const SlotGroups& groups, const Memory& memory, EpochDomain& domain);

  static constexpr uint32_t kAnyGroup = UINT32_MAX;

  // A slot of `group` if one is free there. kNoSlot when all are in use or still in sight of a
  // reader.
  SlotNumber Take(uint32_t group);

  // REQUIRES: a reader that begins now can't find `slot`.
  void Retire(SlotNumber slot);

  // Slots that have been used at some time are among the first so many.
  uint32_t touched() const { return touched_; }

 private:
  struct Batch {
    uint64_t epoch = 0;  // at which ...
    uint64_t end = 0;    // ... the retired slots before this position are out of sight
  };

  static constexpr size_t SummaryWords(const SlotGroups& groups) {
    return (groups.count() + 63) / 64;
  }

  void Reclaim();
  void Free(uint64_t count_max);
  SlotNumber TakeFrom(uint32_t group);
  SlotNumber TakeAnywhere(uint32_t group);
  uint32_t FindOpen(uint32_t from) const;
  uint64_t FreeIn(uint32_t group) const;
  SlotNumber& At(uint64_t position) { return ring_[position % ring_.size()]; }

  static constexpr size_t kBatchesMax = 16;
  static constexpr uint64_t kRetiredWorthALook = 64;
  static constexpr uint64_t kFreedPerTake = 4;

  const SlotGroups groups_;
  const std::span<SlotNumber> ring_;
  const std::span<uint64_t> taken_;  // per group, a bit for each slot that is lent or retired
  const std::span<uint64_t> full_;   // a bit for each group without a free slot
  EpochDomain& domain_;
  uint32_t touched_ = 0;
  uint32_t hand_ = 0;  // where the next slot outside of its group is looked for
  // Positions in an endless queue of retired slots: those in [head, safe_end) are free, and of the
  // others what is before sealed_end belongs to a batch.
  uint64_t head_ = 0;
  uint64_t safe_end_ = 0;
  uint64_t sealed_end_ = 0;
  uint64_t tail_ = 0;
  std::array<Batch, kBatchesMax> batches_{};  // [batch_head, batch_tail), modulo the size
  uint64_t batch_head_ = 0;
  uint64_t batch_tail_ = 0;
};

}  // namespace hps
