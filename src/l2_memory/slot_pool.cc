#include "l2_memory/slot_pool.h"

#include <algorithm>
#include <bit>

#include "base/macros.h"

namespace hps {
namespace {

constexpr uint32_t kWordBits = 64;
constexpr uint32_t kNoGroup = UINT32_MAX;

constexpr uint64_t LowBits(uint32_t count) {
  return count >= kWordBits ? UINT64_MAX : (uint64_t{1} << count) - 1;
}

}  // namespace

SlotPool::SlotPool(const SlotGroups& groups, const Memory& memory, EpochDomain& domain)
    : groups_(groups),
      ring_(memory.ring),
      taken_(memory.words.first(groups.count())),
      full_(memory.words.subspan(groups.count())),
      domain_(domain) {
  HPS_CHECK(ring_.size() == groups.slot_count && memory.words.size() == WordsFor(groups));
  HPS_CHECK(groups.slots <= std::min(kWordBits, 1u << groups.bits));
}

SlotNumber SlotPool::Take(uint32_t group) {
  if (head_ == safe_end_ && tail_ - safe_end_ >= kRetiredWorthALook) Reclaim();
  Free(kFreedPerTake);
  SlotNumber slot = TakeAnywhere(group);
  if (slot == kNoSlot) {
    Reclaim();
    Free(kRetiredWorthALook);
    slot = TakeAnywhere(group);
  }
  if (slot != kNoSlot) touched_ = std::max(touched_, groups_.IndexOf(slot) + 1);
  return slot;
}

// Of two groups that have room the emptier one lends, so that fewer groups fill up and send their
// own away.
SlotNumber SlotPool::TakeAnywhere(uint32_t group) {
  if (group != kAnyGroup && FreeIn(group) != 0) return TakeFrom(group);
  const uint32_t first = FindOpen(group == kAnyGroup ? 0 : hand_);
  if (first == kNoGroup) return kNoSlot;
  if (group == kAnyGroup) return TakeFrom(first);
  hand_ = first + 1 < groups_.count() ? first + 1 : 0;
  const uint32_t second = FindOpen(hand_);
  return TakeFrom(std::popcount(FreeIn(second)) > std::popcount(FreeIn(first)) ? second : first);
}

SlotNumber SlotPool::TakeFrom(uint32_t group) {
  const auto in_group = static_cast<uint32_t>(std::countr_zero(FreeIn(group)));
  taken_[group] |= uint64_t{1} << in_group;
  if (FreeIn(group) == 0) full_[group / kWordBits] |= uint64_t{1} << group % kWordBits;
  return groups_.Number(group, in_group);
}

// The first group with a free slot at or after `from`, around the end.
uint32_t SlotPool::FindOpen(uint32_t from) const {
  const uint32_t count = groups_.count();
  const auto words = static_cast<uint32_t>(full_.size());
  for (uint32_t i = 0; i <= words; ++i) {
    const uint32_t word = (from / kWordBits + i) % words;
    uint64_t open = ~full_[word] & LowBits(count - word * kWordBits);
    if (i == 0) open &= ~LowBits(from % kWordBits);
    if (open != 0) return word * kWordBits + static_cast<uint32_t>(std::countr_zero(open));
  }
  return kNoGroup;
}

uint64_t SlotPool::FreeIn(uint32_t group) const {
  const uint32_t slots = std::min(groups_.slots, groups_.slot_count - group * groups_.slots);
  return ~taken_[group] & LowBits(slots);
}

void SlotPool::Retire(SlotNumber slot) {
  HPS_DCHECK(slot != kNoSlot && groups_.IndexOf(slot) < touched_ && tail_ - head_ < ring_.size());
  At(tail_++) = slot;
}

void SlotPool::Free(uint64_t count_max) {
  const uint64_t end = std::min(safe_end_, head_ + count_max);
  for (; head_ < end; ++head_) {
    const SlotNumber slot = At(head_);
    const uint32_t group = groups_.GroupOf(slot);
    taken_[group] &= ~(uint64_t{1} << groups_.InGroup(slot));
    full_[group / kWordBits] &= ~(uint64_t{1} << group % kWordBits);
  }
}

void SlotPool::Reclaim() {
  if (tail_ > sealed_end_) {
    // With all batches in use the newest one grows: its slots wait for a later epoch than they
    // need, which is safe.
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
