// The steps of a fetch, for a machine that says how a line is probed and a row is copied.
//
// Everything here has internal linkage, because it is compiled once per machine, each time for
// another instruction set: no two of these may ever be taken for one another.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "l2_memory/fetch.h"

namespace hps {
namespace {

constexpr size_t kGroupKeys = 8;
// Groups between two steps of one group: long enough for a line of the index, or a whole row, to
// come from memory.
constexpr size_t kProbeLag = 1;
constexpr size_t kDecideLag = 1;
constexpr size_t kAnswerLag = 3;
constexpr size_t kGroupsUnderWay = 8;  // more than the sum of the lags, a power of two
static_assert(kProbeLag + kDecideLag + kAnswerLag < kGroupsUnderWay);
constexpr size_t kCacheLineBytes = 64;
// Of wide rows the first lines are asked for; the machine's own prefetcher sees the rest coming.
constexpr size_t kPrefetchBytesMax = 1024;

// Rows of this size and more are asked for into the second-level cache, which has more lines under
// way at a time than the first-level one. Measured: a third faster at 512 bytes.
constexpr size_t kFarPrefetchBytesMin = 128;

// The partition of a key and its first line there.
struct Place {
  uint32_t partition = 0;
  uint32_t first = 0;
};

// How a key's place follows from its hash, the same for all keys of a table.
struct PlaceShape {
  uint64_t partition_count = 0;
  uint64_t line_count = 0;

  Place PlaceOf(uint64_t hash) const {
    return {static_cast<uint32_t>(HashToRange(hash, partition_count)),
            FirstLine(hash, static_cast<uint32_t>(line_count))};
  }
};

// `Machine` has Locate (PlaceOf for kGroupKeys keys), Probe (as ProbeLine), Copy, CopyStreaming and
// FinishStreaming.
template <typename Machine>
class FetchSteps {
 public:
  FetchSteps(const FetchSource& source, const FetchBatch& batch)
      : partitions_(source.partitions.data()),
        place_shape_{source.partitions.size(), source.shape->line_count},
        lines_(source.partitions[0].lines),
        rows_(source.partitions[0].rows),
        versions_(source.partitions[0].versions),
        slot_count_(source.shape->slot_count),
        row_bytes_(source.shape->row_bytes),
        stride_bytes_(source.shape->stride_bytes),
        eviction_(source.shape->eviction),
        batch_(batch) {}

  // The steps of different groups take turns key by key, so that lines are asked for evenly: a core
  // waits when more than a few are on their way.
  void Run(FetchRange range, bool streaming, FetchCounts& counts) {
    constexpr size_t kDecide = kProbeLag + kDecideLag;
    constexpr size_t kAnswer = kDecide + kAnswerLag;
    const size_t groups = (range.end - range.begin + kGroupKeys - 1) / kGroupKeys;
    FetchCounts sum;  // local, so that it stays in registers
    for (size_t step = 0; step < groups + kAnswer; ++step) {
      Group& located = GroupOf(step);
      Group& probed = GroupOf(step - kProbeLag);
      Group& answered = GroupOf(step - kAnswer);
      Locate(located, range, step);
      for (size_t i = 0; i < kGroupKeys; ++i) {
        if (i < located.count) __builtin_prefetch(&FirstLineOf(located.places[i]));
        if (i < probed.count) ProbeFirst(probed, i);
        if (i < answered.count) Answer(answered, i, streaming, sum);
      }
      ProbeSecond(GroupOf(step - kDecide));
    }
    if (streaming) Machine::FinishStreaming();
    counts.misses += sum.misses;
    counts.hits += sum.hits;
    counts.absent += sum.absent;
  }

 private:
  // One group on its way through the steps; empty before the first and after the last one.
  struct Group {
    size_t begin = 0;
    size_t count = 0;
    size_t undecided_count = 0;  // keys that weren't in their first line
    std::array<uint8_t, kGroupKeys> undecided;
    std::array<SlotNumber, kGroupKeys> slots;
    std::array<Place, kGroupKeys> places;
    std::array<uint64_t, kGroupKeys> sequences;  // of the first lines of undecided keys
    std::array<const std::byte*, kGroupKeys> rows;
  };

  Group& GroupOf(size_t step) { return ring_[step % kGroupsUnderWay]; }

  void Locate(Group& group, FetchRange range, size_t step) const {
    group.begin = std::min(range.end, range.begin + step * kGroupKeys);
    group.count = std::min(kGroupKeys, range.end - group.begin);
    group.undecided_count = 0;
    const Key* const keys = batch_.keys.data() + group.begin;
    if (group.count == kGroupKeys) {
      Machine::Locate(keys, place_shape_, group.places.data());
    } else {
      for (size_t i = 0; i < group.count; ++i)
        group.places[i] = place_shape_.PlaceOf(HashKey(keys[i], kL2HashSeed));
    }
  }

  void ProbeFirst(Group& group, size_t i) const {
    const Key key = batch_.keys[group.begin + i];
    const Place place = group.places[i];
    IndexLine& line = FirstLineOf(place);
    const LineProbe probe = Machine::Probe(line, key);
    group.slots[i] = probe.slot;
    if (probe.slot == kNoSlot) {
      group.sequences[i] = probe.sequence;
      group.undecided[group.undecided_count++] = static_cast<uint8_t>(i);
      __builtin_prefetch(&SecondLineOf(place, HashKey(key, kL2HashSeed)));
      return;
    }
    Stamp(place, line, probe);
    Find(group, i);
  }

  void ProbeSecond(Group& group) const {
    for (size_t u = 0; u < group.undecided_count; ++u) {
      const size_t i = group.undecided[u];
      group.slots[i] = Decide(group.places[i], batch_.keys[group.begin + i], group.sequences[i]);
      Find(group, i);
    }
    group.undecided_count = 0;
  }

  IndexLine& FirstLineOf(Place place) const {
    return lines_[place.partition * place_shape_.line_count + place.first];
  }

  IndexLine& SecondLineOf(Place place, uint64_t hash) const {
    const auto line_count = static_cast<uint32_t>(place_shape_.line_count);
    return lines_[place.partition * place_shape_.line_count +
                  SecondLine(hash, place.first, line_count)];
  }

  // Decides a key that its first line didn't have. A first line that has changed meanwhile may have
  // taken the key from the second one, and the key is looked for again.
  SlotNumber Decide(Place place, Key key, uint64_t first_sequence) const {
    IndexLine& first = FirstLineOf(place);
    IndexLine& second = SecondLineOf(place, HashKey(key, kL2HashSeed));
    for (;;) {
      const LineProbe in_second = Machine::Probe(second, key);
      if (in_second.slot != kNoSlot) {
        Stamp(place, second, in_second);
        return in_second.slot;
      }
      if (first.sequence.load(std::memory_order_acquire) == first_sequence) return kNoSlot;
      const LineProbe in_first = Machine::Probe(first, key);
      if (in_first.slot != kNoSlot) {
        Stamp(place, first, in_first);
        return in_first.slot;
      }
      first_sequence = in_first.sequence;
    }
  }

  void Find(Group& group, size_t i) const {
    const SlotNumber slot = group.slots[i];
    if (slot == kNoSlot || slot == kAbsentSlot) return;
    const size_t number = size_t{group.places[i].partition} * slot_count_ + slot - 1u;
    const std::byte* const row = rows_ + number * stride_bytes_;
    group.rows[i] = row;
    // Written out here: the compiler takes a function that only prefetches for one without effect.
    const size_t bytes = std::min(row_bytes_, kPrefetchBytesMax);
    if (row_bytes_ >= kFarPrefetchBytesMin) {
      for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
        __builtin_prefetch(row + offset, 0, 2);
    } else {
      for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
        __builtin_prefetch(row + offset, 0, 3);
    }
    if (stride_bytes_ % kCacheLineBytes != 0) __builtin_prefetch(row + bytes - 1);
    if (!batch_.versions.empty()) __builtin_prefetch(&versions_[number]);
  }

  void Answer(const Group& group, size_t i, bool streaming, FetchCounts& counts) const {
    const size_t at = group.begin + i;
    const SlotNumber slot = group.slots[i];
    if (slot == kNoSlot || slot == kAbsentSlot) {
      batch_.outcomes[at] = slot == kNoSlot ? FetchOutcome::kMiss : FetchOutcome::kAbsent;
      ++(slot == kNoSlot ? counts.misses : counts.absent);
      return;
    }
    if (streaming) {
      Machine::CopyStreaming(batch_.rows.row(at), group.rows[i], row_bytes_);
    } else {
      Machine::Copy(batch_.rows.row(at), group.rows[i], row_bytes_);
    }
    batch_.outcomes[at] = FetchOutcome::kHit;
    ++counts.hits;
    if (batch_.versions.empty()) return;
    const size_t number = size_t{group.places[i].partition} * slot_count_ + slot - 1u;
    batch_.versions[at] = versions_[number].load(std::memory_order_relaxed);
  }

  // A use leaves its mark only where that changes something, so that hot lines stay shared.
  void Stamp(Place place, IndexLine& line, const LineProbe& probe) const {
    if (eviction_ == EvictionPolicy::kRandom) return;
    std::atomic<uint8_t>& stamp = line.stamps[probe.entry];
    const uint8_t value = stamp.load(std::memory_order_relaxed);
    if (eviction_ == EvictionPolicy::kOldest) {
      const uint8_t now = partitions_[place.partition].tick.load(std::memory_order_relaxed);
      if (value != now) stamp.store(now, std::memory_order_relaxed);
    } else if (value < UINT8_MAX) {
      // A count that doubles every 16 steps reaches far in a byte: a step is taken with a chance of
      // 2^-(value / 16).
      thread_local uint64_t random = 0x9e3779b97f4a7c15;
      random = random * 6364136223846793005 + 1442695040888963407;
      const uint64_t mask = (uint64_t{1} << (value / 16)) - 1;
      if (((random >> 40) & mask) == 0)
        stamp.store(static_cast<uint8_t>(value + 1), std::memory_order_relaxed);
    }
  }

  PartitionView* const partitions_;
  const PlaceShape place_shape_;
  // Of the first partition; those of the others follow without a gap.
  IndexLine* const lines_;
  const std::byte* const rows_;
  const std::atomic<Version>* const versions_;
  const size_t slot_count_;
  const size_t row_bytes_;
  const size_t stride_bytes_;
  const EvictionPolicy eviction_;
  const FetchBatch& batch_;
  std::array<Group, kGroupsUnderWay> ring_;
};

}  // namespace
}  // namespace hps
