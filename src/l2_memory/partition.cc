#include "l2_memory/partition.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/hash.h"
#include "base/macros.h"

namespace hps {
namespace {

// The last-use tick advances when this share of the rows has been inserted. Stamps count modulo
// 256, so a row's age is correct for eight fillings of the partition; it is evicted long before
// that.
constexpr uint32_t kTicksPerFilling = 32;

// A call that uses nearly every row gives them all a young stamp, so the least popular row can't be
// told from the most popular one. Therefore such a call's batch evicts a row that was used in the
// last kYoungTicks ticks (as many as one batch may bring about) only for a row that the call asked
// for at least kInsistentTimes times. A row that is left out for this reason makes the tick
// advance, too: otherwise the rows of a table that lets nothing in would stay young.
constexpr uint32_t kYoungTicks = 2;
constexpr uint32_t kInsistentTimes = 8;

// Maximum keys moved to make room for one. Two moves examine at most 60 lines, and leave less than
// one key in a million without a place in an index that is filled as table_layout.cc fills it.
constexpr int kMovesMax = 2;

// Initial use count of a new row, so that it is not evicted first.
constexpr uint8_t kFirstUseCount = 2;

}  // namespace

Partition::Partition(const PartitionShape& shape, PartitionView& view, const Memory& memory,
                     EpochDomain& domain)
    : shape_(shape),
      view_(view),
      slots_(memory.ring, domain),
      frequencies_(memory.frequencies, shape.slot_count) {
  HPS_CHECK(shape.line_count >= 2 && shape.slot_count == memory.ring.size() &&
            shape.frequency_word_count == memory.frequencies.size() &&
            shape.slot_count <= kSlotsMax && shape.rows_max < shape.slot_count &&
            shape.rows_target < shape.rows_max);
  if (shape.eviction == EvictionPolicy::kLeastUsed)
    view.tick->store(UINT8_MAX, std::memory_order_relaxed);
}

Partition::Inserted Partition::Insert(HashedKey key, Version version, const std::byte* row,
                                      const Demand& demand) {
  MutexLock lock(mutex_);
  if (Find(key).line != nullptr) return Inserted::kHeld;
  const bool absent = row == nullptr;
  if (!absent && IsFull()) {
    const Inserted admitted = Admit(key.key, demand);
    if (admitted != Inserted::kInserted) return admitted;
  }
  const bool spare_young = !absent && demand.spare_young && demand.times_asked < kInsistentTimes &&
                           shape_.eviction == EvictionPolicy::kOldest;
  SlotNumber slot = kAbsentSlot;
  Entry entry;
  if (MakeRoom(absent, spare_young)) {
    entry = MakeEntry(key);
  } else if (spare_young) {
    ++counts_.not_admitted;
    CountInsertion();
    return Inserted::kNotAdmitted;
  }
  if (entry.line != nullptr && !absent) slot = FillSlot(version, row);
  if (entry.line == nullptr || slot == kNoSlot) {
    ++counts_.dropped;
    return Inserted::kDropped;
  }
  Publish(entry, key.key, slot, FirstStamp());
  ++(absent ? counts_.absent : counts_.rows);
  ++counts_.insertions;
  CountInsertion();
  return Inserted::kInserted;
}

bool Partition::Update(HashedKey key, Version version, const std::byte* row) {
  MutexLock lock(mutex_);
  const Entry entry = Find(key);
  if (entry.line == nullptr) return false;
  const SlotNumber old_slot = entry.slot();
  if (old_slot != kAbsentSlot && VersionOf(old_slot) >= version) return false;
  // An absent entry becomes a row, which needs room as an insertion does.
  const SlotNumber slot =
      old_slot != kAbsentSlot || counts_.rows < shape_.rows_max ? FillSlot(version, row) : kNoSlot;
  if (slot == kNoSlot) {
    Remove(entry);
    return false;
  }
  entry.line->slots[entry.index].store(slot, std::memory_order_seq_cst);
  if (old_slot == kAbsentSlot) {
    --counts_.absent;
    ++counts_.rows;
  } else {
    slots_.Retire(old_slot);
  }
  ++counts_.updates;
  return true;
}

bool Partition::Erase(HashedKey key) {
  MutexLock lock(mutex_);
  const Entry entry = Find(key);
  if (entry.line == nullptr) return false;
  Remove(entry);
  return true;
}

bool Partition::EraseOlder(HashedKey key, Version below) {
  MutexLock lock(mutex_);
  const Entry entry = Find(key);
  if (entry.line == nullptr) return false;
  if (entry.slot() != kAbsentSlot && VersionOf(entry.slot()) >= below) return false;
  Remove(entry);
  return true;
}

void Partition::Clear() {
  MutexLock lock(mutex_);
  for (uint32_t i = 0; i < view_.line_count; ++i) {
    for (size_t e = 0; e < IndexLine::kEntries; ++e) {
      const Entry entry{&view_.lines[i], e};
      if (entry.slot() != kNoSlot) Remove(entry);
    }
  }
  evicting_ = full_ = false;
}

PartitionCounts Partition::Counts() const {
  MutexLock lock(mutex_);
  PartitionCounts counts = counts_;
  counts.sketched = frequencies_.counted();
  counts.touched_slots = slots_.touched();
  return counts;
}

Partition::Entry Partition::Find(HashedKey key) const {
  const LinePair pair = LinesOf(key.hash, view_.line_count);
  for (const uint32_t number : {pair.first, pair.second}) {
    for (size_t e = 0; e < IndexLine::kEntries; ++e) {
      const Entry entry{&view_.lines[number], e};
      if (entry.key() == key.key && entry.slot() != kNoSlot) return entry;
    }
  }
  return {};
}

Partition::Entry Partition::FreeEntry(IndexLine& line) const {
  for (size_t e = 0; e < IndexLine::kEntries; ++e) {
    const Entry entry{&line, e};
    if (entry.slot() == kNoSlot) return entry;
  }
  return {};
}

// Filling the first line first keeps most keys where readers look first.
Partition::Entry Partition::MakeEntry(HashedKey key) {
  const LinePair pair = LinesOf(key.hash, view_.line_count);
  IndexLine& first = view_.lines[pair.first];
  IndexLine& second = view_.lines[pair.second];
  Entry entry = FreeEntry(first);
  if (entry.line == nullptr) entry = FreeEntry(second);
  for (int depth = 1; depth <= kMovesMax && entry.line == nullptr; ++depth) {
    entry = MoveOneAway(first, depth);
    if (entry.line == nullptr) entry = MoveOneAway(second, depth);
  }
  if (entry.line != nullptr) return entry;
  uint32_t worst = 0;
  for (IndexLine* line : {&first, &second}) {
    for (size_t e = 0; e < IndexLine::kEntries; ++e) {
      const uint32_t rank = RankOf({line, e});  // evaluated once: it may be random
      if (entry.line != nullptr && rank <= worst) continue;
      entry = {line, e};
      worst = rank;
    }
  }
  Remove(entry);
  ++counts_.evictions;
  return entry;
}

Partition::Entry Partition::MoveOneAway(IndexLine& line, int depth) {
  for (size_t e = 0; e < IndexLine::kEntries; ++e) {
    const Entry from{&line, e};
    const Key key = from.key();
    const LinePair pair = LinesOf(HashKey(key, kL2HashSeed), view_.line_count);
    IndexLine& first = view_.lines[pair.first];
    IndexLine& other = &first == &line ? view_.lines[pair.second] : first;
    const Entry to = depth == 1 ? FreeEntry(other) : MoveOneAway(other, depth - 1);
    if (to.line == nullptr) continue;
    Publish(to, key, from.slot(), line.stamps[e].load(std::memory_order_relaxed));
    line.slots[e].store(kNoSlot, std::memory_order_seq_cst);
    return from;
  }
  return {};
}

void Partition::Publish(Entry entry, Key key, SlotNumber slot, uint8_t stamp) {
  IndexLine& line = *entry.line;
  line.stamps[entry.index].store(stamp, std::memory_order_relaxed);
  line.keys[entry.index].store(key, std::memory_order_release);
  line.sequence.store(line.sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  line.slots[entry.index].store(slot, std::memory_order_release);
}

void Partition::Remove(Entry entry) {
  const SlotNumber slot = entry.slot();
  // Sequentially consistent: a retired slot must be invisible before the epoch advances.
  entry.line->slots[entry.index].store(kNoSlot, std::memory_order_seq_cst);
  if (slot == kAbsentSlot) {
    --counts_.absent;
  } else {
    --counts_.rows;
    slots_.Retire(slot);
  }
}

SlotNumber Partition::FillSlot(Version version, const std::byte* row) {
  const SlotNumber slot = slots_.Take();
  if (slot == kNoSlot) return kNoSlot;
  std::atomic<uint32_t>& sequence = view_.sequences[slot - 1];
  const uint32_t even = sequence.load(std::memory_order_relaxed);
  // An exchange, so that no byte of the row is written before it.
  sequence.exchange(even + 1, std::memory_order_acq_rel);
  std::memcpy(view_.rows + size_t{slot - 1u} * shape_.stride_bytes, row, shape_.row_bytes);
  view_.versions[slot - 1].store(version, std::memory_order_relaxed);
  sequence.store(even + 2, std::memory_order_release);
  return slot;
}

bool Partition::MakeRoom(bool absent, bool spare_young) {
  if (absent) {
    if (counts_.absent >= shape_.absent_max) EvictStep(true, false);
    return counts_.absent < shape_.absent_max;
  }
  if (counts_.rows >= shape_.rows_max) evicting_ = true;
  if (counts_.rows <= shape_.rows_target) evicting_ = false;
  if (evicting_) EvictStep(false, spare_young);
  return counts_.rows < shape_.rows_max;
}

// Eviction leaves up to kStepVictims rows less than its end says.
bool Partition::IsFull() {
  if (counts_.rows >= shape_.rows_max) full_ = true;
  if (counts_.rows == 0 || counts_.rows + kStepVictims < shape_.rows_target) full_ = false;
  return full_;
}

Partition::Inserted Partition::Admit(Key key, const Demand& demand) {
  if (demand.admission == Admission::kIfRoom) {
    ++counts_.dropped;
    return Inserted::kDropped;
  }
  if (demand.admission == Admission::kAlways) return Inserted::kInserted;
  const bool frequent = frequencies_.IsFrequent(key, demand.times_asked);
  if (frequent && demand.may_evict) return Inserted::kInserted;
  ++counts_.not_admitted;
  return Inserted::kNotAdmitted;
}

uint32_t Partition::EvictStep(bool absent, bool spare_young) {
  struct Candidate {
    uint32_t rank = 0;
    Entry entry;
  };
  std::array<Candidate, kStepLines * IndexLine::kEntries> candidates;
  size_t count = 0;
  // Enough lines for a full sample in a full partition; an emptier one is searched slightly
  // further.
  const uint32_t lines_max = std::min(view_.line_count, 4 * kStepLines);
  for (uint32_t i = 0; i < lines_max && (i < kStepLines || count < kStepVictims); ++i) {
    IndexLine& line = view_.lines[hand_];
    hand_ = hand_ + 1 < view_.line_count ? hand_ + 1 : 0;
    for (size_t e = 0; e < IndexLine::kEntries && count < candidates.size(); ++e) {
      const Entry entry{&line, e};
      const SlotNumber slot = entry.slot();
      if (slot == kNoSlot || (slot == kAbsentSlot) != absent) continue;
      candidates[count++] = {RankOf(entry), entry};
    }
  }
  size_t victims = std::min<size_t>(count, kStepVictims);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(victims),
                    candidates.begin() + static_cast<ptrdiff_t>(count),
                    [](const Candidate& a, const Candidate& b) { return a.rank > b.rank; });
  while (spare_young && victims > 0 && candidates[victims - 1].rank <= kYoungTicks) --victims;
  for (size_t i = 0; i < victims; ++i) Remove(candidates[i].entry);
  counts_.evictions += victims;
  if (shape_.eviction != EvictionPolicy::kLeastUsed) return static_cast<uint32_t>(victims);
  // Use counts decay; otherwise rows that were once popular would stay forever.
  for (size_t i = victims; i < count; ++i) {
    std::atomic<uint8_t>& uses = candidates[i].entry.line->stamps[candidates[i].entry.index];
    const uint8_t value = uses.load(std::memory_order_relaxed);
    uses.store(static_cast<uint8_t>(value - (value + 7) / 8), std::memory_order_relaxed);
  }
  return static_cast<uint32_t>(victims);
}

// A higher rank is evicted sooner.
uint32_t Partition::RankOf(Entry entry) {
  if (shape_.eviction != EvictionPolicy::kRandom) {
    const uint8_t stamp = entry.line->stamps[entry.index].load(std::memory_order_relaxed);
    return EvictionRank(shape_.eviction, stamp, view_.tick->load(std::memory_order_relaxed));
  }
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  return static_cast<uint32_t>(random_ >> 32);
}

void Partition::CountInsertion() {
  if (shape_.eviction != EvictionPolicy::kOldest) return;
  if (++insertions_this_tick_ * kTicksPerFilling < shape_.rows_max) return;
  insertions_this_tick_ = 0;
  const uint8_t tick = view_.tick->load(std::memory_order_relaxed);
  view_.tick->store(static_cast<uint8_t>(tick + 1), std::memory_order_relaxed);
}

uint8_t Partition::FirstStamp() const {
  if (shape_.eviction == EvictionPolicy::kLeastUsed) return kFirstUseCount;
  return view_.tick->load(std::memory_order_relaxed);
}

}  // namespace hps
