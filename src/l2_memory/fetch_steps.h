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
constexpr size_t kLag = 2;             // groups between two steps of one group
constexpr size_t kGroupsUnderWay = 8;  // at least 3 * kLag + 1, a power of two
constexpr size_t kCacheLineBytes = 64;
// Of wide rows the first lines are asked for; the machine's own prefetcher sees the rest coming.
constexpr size_t kPrefetchBytesMax = 1024;

// `Machine` has Probe (as ProbeLine), Copy, CopyStreaming and FinishStreaming.
template <typename Machine>
class FetchSteps {
 public:
  FetchSteps(const FetchSource& source, const FetchBatch& batch)
      : partitions_(source.partitions.data()),
        partition_count_(source.partitions.size()),
        row_bytes_(source.shape->row_bytes),
        stride_bytes_(source.shape->stride_bytes),
        eviction_(source.shape->eviction),
        batch_(batch) {}

  void Run(FetchRange range, bool streaming, FetchCounts& counts) {
    const size_t groups = (range.end - range.begin + kGroupKeys - 1) / kGroupKeys;
    for (size_t step = 0; step < groups + 3 * kLag; ++step) {
      if (step < groups) {
        Group& group = ring_[step % kGroupsUnderWay];
        group.begin = range.begin + step * kGroupKeys;
        group.count = std::min(kGroupKeys, range.end - group.begin);
        Hash(group);
      }
      if (step >= kLag && step - kLag < groups) ProbeFirst(ring_[(step - kLag) % kGroupsUnderWay]);
      if (step >= 2 * kLag && step - 2 * kLag < groups)
        ProbeSecond(ring_[(step - 2 * kLag) % kGroupsUnderWay]);
      if (step >= 3 * kLag) Answer(ring_[(step - 3 * kLag) % kGroupsUnderWay], streaming, counts);
    }
    if (streaming) Machine::FinishStreaming();
  }

 private:
  // One group on its way through the steps.
  struct Group {
    size_t begin = 0;
    size_t count = 0;
    size_t undecided_count = 0;  // keys that weren't in their first line
    std::array<uint8_t, kGroupKeys> undecided;
    std::array<SlotNumber, kGroupKeys> slots;
    std::array<uint64_t, kGroupKeys> hashes;
    std::array<PartitionView*, kGroupKeys> partitions;
    std::array<IndexLine*, kGroupKeys> lines;
    std::array<uint64_t, kGroupKeys> sequences;  // of the first lines of undecided keys
    std::array<const std::byte*, kGroupKeys> rows;
  };

  void Hash(Group& group) const {
    const Key* const keys = batch_.keys.data() + group.begin;
    for (size_t i = 0; i < group.count; ++i) {
      const uint64_t hash = HashKey(keys[i], kL2HashSeed);
      PartitionView& view = partitions_[HashToRange(hash, partition_count_)];
      IndexLine* const line = &view.lines[FirstLine(hash, view.line_count)];
      __builtin_prefetch(line);
      group.hashes[i] = hash;
      group.partitions[i] = &view;
      group.lines[i] = line;
    }
  }

  void ProbeFirst(Group& group) const {
    const Key* const keys = batch_.keys.data() + group.begin;
    group.undecided_count = 0;
    for (size_t i = 0; i < group.count; ++i) {
      PartitionView& view = *group.partitions[i];
      IndexLine& line = *group.lines[i];
      const LineProbe probe = Machine::Probe(line, keys[i]);
      group.slots[i] = probe.slot;
      if (probe.slot == kNoSlot) {
        group.sequences[i] = probe.sequence;
        group.undecided[group.undecided_count++] = static_cast<uint8_t>(i);
        const auto first = static_cast<uint32_t>(&line - view.lines);
        __builtin_prefetch(&view.lines[SecondLine(group.hashes[i], first, view.line_count)]);
        continue;
      }
      Stamp(view, line, probe);
      Find(group, i, view, probe.slot);
    }
  }

  void ProbeSecond(Group& group) const {
    for (size_t u = 0; u < group.undecided_count; ++u) {
      const size_t i = group.undecided[u];
      PartitionView& view = *group.partitions[i];
      group.slots[i] = Decide(view, *group.lines[i], batch_.keys[group.begin + i], group.hashes[i],
                              group.sequences[i]);
      if (group.slots[i] != kNoSlot) Find(group, i, view, group.slots[i]);
    }
  }

  // Decides a key that its first line didn't have. A first line that has changed meanwhile may have
  // taken the key from the second one, and the key is looked for again.
  SlotNumber Decide(PartitionView& view, IndexLine& first, Key key, uint64_t hash,
                    uint64_t first_sequence) const {
    const auto number = static_cast<uint32_t>(&first - view.lines);
    IndexLine& second = view.lines[SecondLine(hash, number, view.line_count)];
    for (;;) {
      const LineProbe in_second = Machine::Probe(second, key);
      if (in_second.slot != kNoSlot) {
        Stamp(view, second, in_second);
        return in_second.slot;
      }
      if (first.sequence.load(std::memory_order_acquire) == first_sequence) return kNoSlot;
      const LineProbe in_first = Machine::Probe(first, key);
      if (in_first.slot != kNoSlot) {
        Stamp(view, first, in_first);
        return in_first.slot;
      }
      first_sequence = in_first.sequence;
    }
  }

  void Find(Group& group, size_t i, const PartitionView& view, SlotNumber slot) const {
    if (slot == kAbsentSlot) return;
    const std::byte* const row = view.rows + size_t{slot - 1u} * stride_bytes_;
    group.rows[i] = row;
    const size_t bytes = std::min(row_bytes_, kPrefetchBytesMax);
    for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
      __builtin_prefetch(row + offset);
    if (stride_bytes_ % kCacheLineBytes != 0) __builtin_prefetch(row + bytes - 1);
    if (!batch_.versions.empty()) __builtin_prefetch(&view.versions[slot - 1]);
  }

  void Answer(const Group& group, bool streaming, FetchCounts& counts) const {
    for (size_t i = 0; i < group.count; ++i) {
      const size_t at = group.begin + i;
      const SlotNumber slot = group.slots[i];
      if (slot == kNoSlot || slot == kAbsentSlot) {
        batch_.outcomes[at] = slot == kNoSlot ? FetchOutcome::kMiss : FetchOutcome::kAbsent;
        ++(slot == kNoSlot ? counts.misses : counts.absent);
        continue;
      }
      if (streaming) {
        Machine::CopyStreaming(batch_.rows.row(at), group.rows[i], row_bytes_);
      } else {
        Machine::Copy(batch_.rows.row(at), group.rows[i], row_bytes_);
      }
      batch_.outcomes[at] = FetchOutcome::kHit;
      if (!batch_.versions.empty()) {
        batch_.versions[at] =
            group.partitions[i]->versions[slot - 1].load(std::memory_order_relaxed);
      }
      ++counts.hits;
    }
  }

  // A use leaves its mark only where that changes something, so that hot lines stay shared.
  void Stamp(const PartitionView& view, IndexLine& line, const LineProbe& probe) const {
    if (eviction_ == EvictionPolicy::kRandom) return;
    std::atomic<uint8_t>& stamp = line.stamps[probe.entry];
    const uint8_t value = stamp.load(std::memory_order_relaxed);
    if (eviction_ == EvictionPolicy::kOldest) {
      const uint8_t now = view.tick.load(std::memory_order_relaxed);
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
  const size_t partition_count_;
  const size_t row_bytes_;
  const size_t stride_bytes_;
  const EvictionPolicy eviction_;
  const FetchBatch& batch_;
  std::array<Group, kGroupsUnderWay> ring_;
};

}  // namespace
}  // namespace hps
