// One share of a table's keys: an index, the rows, and all operations that change them.
//
// Writers take the partition's lock; readers use a PartitionView under an epoch guard and take no
// lock. A row is never changed in place: a write fills a free slot, publishes its number with one
// store, and retires the old slot.
//
// A partition is full from its first eviction until rows are erased. A full partition may take in
// only rows that are asked for again (tier/admission.h). If a large call has used all rows a moment
// ago, it takes in only rows that the call asked for often.
//
// Eviction begins when the number of rows reaches evict_from and continues, a few victims
// per insertion, until it is down to evict_to. Victims are the entries with the
// highest rank in a few neighbouring lines. The lines are in the order of the keys' hashes, so this
// is a random sample, and a step costs the same however large the partition is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/epoch.h"
#include "base/mutex.h"
#include "hps/config.h"
#include "hps/types.h"
#include "l2_memory/index_line.h"
#include "l2_memory/slot_pool.h"
#include "tier/admission.h"

namespace hps {

// A partition as readers see it. The pointers never change.
struct PartitionView {
  IndexLine* lines = nullptr;
  std::byte* rows = nullptr;                   // of slot 1; the others follow `stride` apart
  std::atomic<Version>* versions = nullptr;    // of slot 1, ...
  std::atomic<uint32_t>* sequences = nullptr;  // odd while a row is being written; for readers
                                               // without an epoch guard, such as a device
  // A use leaves a stamp with this value unchanged: the current tick for kOldest, the maximum count
  // for kLeastUsed, the stamp of every row for kRandom. The ticks of all partitions are adjacent,
  // because readers load one for every key.
  std::atomic<uint8_t>* tick = nullptr;
  uint32_t line_count = 0;
};

// The layout of a partition; the same for all partitions of a table.
struct PartitionShape {
  size_t row_bytes = 0;
  size_t stride_bytes = 0;
  uint32_t slot_count = 0;
  uint32_t line_count = 0;
  uint32_t frequency_word_count = 0;
  uint32_t rows_max = 0;     // eviction begins here
  uint32_t rows_target = 0;  // eviction ends here
  uint32_t absent_max = 0;
  EvictionPolicy eviction = EvictionPolicy::kOldest;
};

// The order of eviction: the row with the higher rank is evicted first, except with kRandom. `tick`
// is the partition's.
inline uint8_t EvictionRank(EvictionPolicy eviction, uint8_t stamp, uint8_t tick) {
  if (eviction == EvictionPolicy::kRandom) return 0;
  return static_cast<uint8_t>((eviction == EvictionPolicy::kOldest ? tick : UINT8_MAX) - stamp);
}

struct PartitionCounts {
  uint64_t rows = 0;
  uint64_t absent = 0;
  uint64_t touched_slots = 0;
  uint64_t insertions = 0;
  uint64_t updates = 0;
  uint64_t evictions = 0;
  uint64_t dropped = 0;
  uint64_t not_admitted = 0;
  uint64_t sketched = 0;  // keys counted in the sketch
};

// Thread-safe.
class Partition {
 public:
  enum class Inserted { kInserted, kHeld, kDropped, kNotAdmitted };

  // The partition's memory that readers do not see; initially zero.
  struct Memory {
    std::span<SlotNumber> ring;              // [slot_count]
    std::span<FrequencyWord> frequencies{};  // [frequency_word_count]
  };

  // The memory of `view` is initially zero, too.
  Partition(const PartitionShape& shape, PartitionView& view, const Memory& memory,
            EpochDomain& domain);
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  // A key and its hash in this table.
  struct HashedKey {
    Key key = 0;
    uint64_t hash = 0;
  };

  // By what a full partition decides whether it takes in a row.
  struct Demand {
    Admission admission = Admission::kAlways;
    uint32_t times_asked = 1;  // see RowBatch::times_asked
    bool may_evict = true;     // false: the row is only counted in the sketch
    bool spare_young = false;  // to evict a row used a moment ago, this one must be asked for often
  };

  // `row` null = an absent entry, which is always admitted.
  Inserted Insert(HashedKey key, Version version, const std::byte* row, const Demand& demand);
  // Returns whether a value was replaced. If no slot is free for the new row, erases the key.
  bool Update(HashedKey key, Version version, const std::byte* row);
  // Returns whether the key was held. With `below`: only removes a row of a lower version, or an
  // absent entry.
  bool Erase(HashedKey key);
  bool EraseOlder(HashedKey key, Version below);
  void Clear();

  PartitionCounts Counts() const;

  // Entries examined by one step of eviction, whatever the size.
  static constexpr uint32_t kStepLines = 8;
  static constexpr uint32_t kStepVictims = 2;

 private:
  struct Entry {
    IndexLine* line = nullptr;  // null = none
    size_t index = 0;

    SlotNumber slot() const { return line->slots[index].load(std::memory_order_relaxed); }
    Key key() const { return line->keys[index].load(std::memory_order_relaxed); }
  };

  Entry Find(HashedKey key) const HPS_REQUIRES(mutex_);
  Entry FreeEntry(IndexLine& line) const HPS_REQUIRES(mutex_);
  // A free entry in one of the key's lines; if necessary, moves or evicts another key.
  Entry MakeEntry(HashedKey key) HPS_REQUIRES(mutex_);
  // Moves up to `depth` keys, each to its other line, until an entry of `line` is free. REQUIRES:
  // no shorter chain of moves frees one.
  Entry MoveOneAway(IndexLine& line, int depth) HPS_REQUIRES(mutex_);
  void Publish(Entry entry, Key key, SlotNumber slot, uint8_t stamp) HPS_REQUIRES(mutex_);
  void Remove(Entry entry) HPS_REQUIRES(mutex_);
  SlotNumber FillSlot(Version version, const std::byte* row) HPS_REQUIRES(mutex_);

  // Evicts up to kStepVictims rows or absent entries, with `spare_young` none that was used in the
  // last ticks. Returns their number.
  uint32_t EvictStep(bool absent, bool spare_young) HPS_REQUIRES(mutex_);
  bool MakeRoom(bool absent, bool spare_young) HPS_REQUIRES(mutex_);
  // Whether a full partition takes the row in; counts it if not.
  Inserted Admit(Key key, const Demand& demand) HPS_REQUIRES(mutex_);
  bool IsFull() HPS_REQUIRES(mutex_);
  uint32_t RankOf(Entry entry) HPS_REQUIRES(mutex_);
  // Advances the tick when it is due.
  void CountInsertion() HPS_REQUIRES(mutex_);
  uint8_t FirstStamp() const;

  Version VersionOf(SlotNumber slot) const {
    return view_.versions[slot - 1].load(std::memory_order_relaxed);
  }

  const PartitionShape shape_;
  PartitionView& view_;
  mutable Mutex mutex_;
  SlotPool slots_ HPS_GUARDED_BY(mutex_);
  PartitionCounts counts_ HPS_GUARDED_BY(mutex_);
  FrequencySketch frequencies_ HPS_GUARDED_BY(mutex_);
  uint32_t hand_ HPS_GUARDED_BY(mutex_) = 0;  // the line that eviction examines next
  bool evicting_ HPS_GUARDED_BY(mutex_) = false;
  bool full_ HPS_GUARDED_BY(mutex_) = false;
  uint32_t insertions_this_tick_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t random_ HPS_GUARDED_BY(mutex_) = 0x9e3779b97f4a7c15;
};

}  // namespace hps
