#include "l2_memory/fetch.h"

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "l2_memory/row_copy.h"

namespace hps {
namespace {

constexpr size_t kGroupKeys = 64;
constexpr size_t kCacheLineBytes = 64;
// Of wide rows the first lines are asked for; the machine's own prefetcher sees the rest coming.
constexpr size_t kPrefetchBytesMax = 1024;

// One group on its way through the phases.
struct Group {
  size_t begin = 0;
  size_t count = 0;
  std::array<uint64_t, kGroupKeys> hashes;
  std::array<PartitionView*, kGroupKeys> partitions;
  std::array<IndexLine*, kGroupKeys> lines;
  std::array<uint64_t, kGroupKeys> sequences;
  std::array<SlotNumber, kGroupKeys> slots;
  std::array<uint8_t, kGroupKeys> undecided;  // positions that weren't found in their first line
  size_t undecided_count = 0;
};

void PrefetchRow(const std::byte* row, size_t row_bytes) {
  const size_t bytes = std::min(row_bytes, kPrefetchBytesMax);
  for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
    __builtin_prefetch(row + offset);
  __builtin_prefetch(row + bytes - 1);
}

const std::byte* RowOf(const PartitionView& view, const PartitionShape& shape, SlotNumber slot) {
  return view.rows + size_t{slot - 1u} * shape.stride_bytes;
}

// A use leaves its mark only where that changes something, so that hot lines stay shared.
void Stamp(PartitionView& view, IndexLine& line, const LineProbe& probe, EvictionPolicy eviction) {
  std::atomic<uint8_t>& stamp = line.stamps[probe.entry];
  const uint8_t value = stamp.load(std::memory_order_relaxed);
  if (eviction == EvictionPolicy::kOldest) {
    const uint8_t now = view.tick.load(std::memory_order_relaxed);
    if (value != now) stamp.store(now, std::memory_order_relaxed);
  } else if (eviction == EvictionPolicy::kLeastUsed && value < UINT8_MAX) {
    // A count that doubles every 16 steps reaches far in a byte: a step is taken with a chance of
    // 2^-(value / 16).
    thread_local uint64_t random = 0x9e3779b97f4a7c15;
    random = random * 6364136223846793005 + 1442695040888963407;
    const uint64_t mask = (uint64_t{1} << (value / 16)) - 1;
    if (((random >> 40) & mask) == 0)
      stamp.store(static_cast<uint8_t>(value + 1), std::memory_order_relaxed);
  }
}

// Decides a key that its first line didn't have. A first line that has changed meanwhile may have
// taken the key from the second one, and the key is looked for again.
SlotNumber ProbeFurther(PartitionView& view, Key key, uint64_t hash, uint64_t first_sequence,
                        EvictionPolicy eviction) {
  const LinePair pair = LinesOf(hash, view.line_count);
  IndexLine& first = view.lines[pair.first];
  IndexLine& second = view.lines[pair.second];
  for (;;) {
    const LineProbe in_second = ProbeLine(second, key);
    if (in_second.slot != kNoSlot) {
      Stamp(view, second, in_second, eviction);
      return in_second.slot;
    }
    if (first.sequence.load(std::memory_order_acquire) == first_sequence) return kNoSlot;
    const LineProbe in_first = ProbeLine(first, key);
    if (in_first.slot != kNoSlot) {
      Stamp(view, first, in_first, eviction);
      return in_first.slot;
    }
    first_sequence = in_first.sequence;
  }
}

void HashPhase(const FetchSource& source, const FetchBatch& batch, Group& group) {
  for (size_t i = 0; i < group.count; ++i) {
    const uint64_t hash = HashKey(batch.keys[group.begin + i], kL2HashSeed);
    PartitionView& view = source.partitions[HashToRange(hash, source.partitions.size())];
    IndexLine* const line = &view.lines[FirstLine(hash, view.line_count)];
    __builtin_prefetch(line);
    group.hashes[i] = hash;
    group.partitions[i] = &view;
    group.lines[i] = line;
  }
}

void ProbePhase(const FetchSource& source, const FetchBatch& batch, Group& group) {
  const PartitionShape& shape = *source.shape;
  group.undecided_count = 0;
  for (size_t i = 0; i < group.count; ++i) {
    PartitionView& view = *group.partitions[i];
    const LineProbe probe = ProbeLine(*group.lines[i], batch.keys[group.begin + i]);
    group.slots[i] = probe.slot;
    if (probe.slot == kNoSlot) {
      group.sequences[i] = probe.sequence;
      group.undecided[group.undecided_count++] = static_cast<uint8_t>(i);
      const uint64_t hash = group.hashes[i];
      __builtin_prefetch(&view.lines[LinesOf(hash, view.line_count).second]);
      continue;
    }
    Stamp(view, *group.lines[i], probe, shape.eviction);
    if (probe.slot != kAbsentSlot) PrefetchRow(RowOf(view, shape, probe.slot), shape.row_bytes);
  }
  for (size_t u = 0; u < group.undecided_count; ++u) {
    const size_t i = group.undecided[u];
    PartitionView& view = *group.partitions[i];
    const SlotNumber slot = ProbeFurther(view, batch.keys[group.begin + i], group.hashes[i],
                                         group.sequences[i], shape.eviction);
    group.slots[i] = slot;
    if (slot != kNoSlot && slot != kAbsentSlot)
      PrefetchRow(RowOf(view, shape, slot), shape.row_bytes);
  }
}

void CopyPhase(const FetchSource& source, const FetchBatch& batch, const Group& group,
               FetchCounts& counts) {
  for (size_t i = 0; i < group.count; ++i) {
    const size_t at = group.begin + i;
    const SlotNumber slot = group.slots[i];
    if (slot == kNoSlot || slot == kAbsentSlot) {
      batch.outcomes[at] = slot == kNoSlot ? FetchOutcome::kMiss : FetchOutcome::kAbsent;
      ++(slot == kNoSlot ? counts.misses : counts.absent);
      continue;
    }
    const PartitionView& view = *group.partitions[i];
    CopyRow(batch.rows.row(at), RowOf(view, *source.shape, slot), source.shape->row_bytes);
    batch.outcomes[at] = FetchOutcome::kHit;
    if (!batch.versions.empty())
      batch.versions[at] = view.versions[slot - 1].load(std::memory_order_relaxed);
    ++counts.hits;
  }
}

}  // namespace

void FetchKeys(const FetchSource& source, const FetchBatch& batch, FetchRange range,
               FetchCounts& counts) {
  Group group;
  for (size_t begin = range.begin; begin < range.end; begin += kGroupKeys) {
    group.begin = begin;
    group.count = std::min(kGroupKeys, range.end - begin);
    HashPhase(source, batch, group);
    ProbePhase(source, batch, group);
    CopyPhase(source, batch, group, counts);
  }
}

}  // namespace hps
