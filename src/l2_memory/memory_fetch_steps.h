// The steps of a fetch, templated on a machine that defines how a line is probed and a row is
// copied.
//
// Everything here has internal linkage, because it is compiled once per machine with different
// instruction sets: the linker must never merge two of these copies.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "l2_memory/memory_fetch.h"

namespace hps {
namespace {

constexpr size_t kGroupKeys = 8;
// Groups between the steps of one key: far enough apart that a line of the index, or a whole row,
// arrives from memory, and close enough that it is still cached when its turn comes.
constexpr size_t kAskLag = 1;
constexpr size_t kProbeLag = 4;
constexpr size_t kAnswerLag = 10;
constexpr size_t kKeysUnderWay = 128;  // more than the lags' keys, a power of two
static_assert((kAnswerLag + 1) * kGroupKeys <= kKeysUnderWay);
constexpr size_t kCacheLineBytes = 64;
// Of wide rows only the first lines are prefetched; the machine's own prefetcher recognizes the
// rest.
constexpr size_t kPrefetchBytesMax = 1024;

// Rows of at least this size are prefetched into the second-level cache, which supports more lines
// in flight than the first-level one. Measured: a third faster at 512 bytes.
constexpr size_t kFarPrefetchBytesMin = 128;

// How a key's place follows from its hash; the same for all keys of a table.
struct PlaceShape {
  uint64_t partition_count = 0;
  uint64_t line_count = 0;     // of one partition
  IndexLine* lines = nullptr;  // of the first partition; the others follow without a gap
};

struct Place {
  IndexLine* line = nullptr;  // the key's first line
  uint64_t partition = 0;
};

inline Place PlaceOf(const PlaceShape& shape, Key key) {
  const uint64_t hash = HashKey(key, kL2HashSeed);
  const uint64_t partition = HashToRange(hash, shape.partition_count);
  return {shape.lines + partition * shape.line_count +
              FirstLine(hash, static_cast<uint32_t>(shape.line_count)),
          partition};
}

// The places of the keys in flight. Aligned, so that a group is stored at once.
struct Places {
  alignas(kCacheLineBytes) std::array<IndexLine*, kKeysUnderWay> lines;
  alignas(kCacheLineBytes) std::array<uint64_t, kKeysUnderWay> partitions;

  void Set(size_t at, Place place) {
    lines[at] = place.line;
    partitions[at] = place.partition;
  }
};

// The `Locator` (see below) for machines that hash one key at a time.
class KeyLocator {
 public:
  KeyLocator(const PlaceShape& shape, const Key* keys) : shape_(shape), keys_(keys) {}

  void Advance(size_t) {}
  void Store(size_t place, Places& places) const {
    for (size_t i = 0; i < kGroupKeys; ++i) places.Set(place + i, PlaceOf(shape_, keys_[i]));
  }

 private:
  const PlaceShape& shape_;
  const Key* const keys_;
};

// Rows can be stored past the caches if they are whole cache lines.
inline bool CanStream(const FetchBatch& batch) {
  const auto address = std::bit_cast<uintptr_t>(batch.rows.data);
  return (address | batch.rows.stride_bytes | batch.rows.row_bytes) % kCacheLineBytes == 0;
}

// `Machine` has
//   Locator       the places of kGroupKeys keys, computed in parts: constructed from the table's
//                 shape and the keys, which both outlive it, then Advance(part) for part = 0 to
//                 kGroupKeys - 1, then Store, which alone writes to the places,
//   Probe         as ProbeLine,
//   Copy, CopyLine, their streaming variants, and FinishStreaming.
// With `kRowLines` > 0, rows have that many cache lines and are aligned to them; 0 = any size.
//
// The loop over full groups does as little as possible for a key that is in its first line, as
// nearly every key is; everything else is outside the loop.
template <typename Machine, size_t kRowLines, bool kStreaming>
class FetchSteps {
 public:
  FetchSteps(const FetchSource& source, const FetchBatch& batch)
      : place_shape_{source.partition_count, source.shape->line_count, source.lines},
        rows_(source.rows),
        versions_(source.versions),
        ticks_(source.ticks),
        slot_count_(source.shape->slot_count),
        row_bytes_(source.shape->row_bytes),
        stride_bytes_(source.shape->stride_bytes),
        eviction_(source.shape->eviction),
        batch_(batch) {}

  // The steps of four groups are interleaved key by key, and the lines of one row are prefetched
  // while another row is copied. This spreads the prefetches evenly: a core stalls if more than a
  // few are in flight.
  void Run(FetchRange range, FetchCounts& counts) {
    const size_t groups = (range.end - range.begin + kGroupKeys - 1) / kGroupKeys;
    for (size_t step = 0; step < groups + kAnswerLag; ++step) {
      const Group located = GroupOf(range, step, 0);
      const Group asked = GroupOf(range, step, kAskLag);
      const Group probed = GroupOf(range, step, kProbeLag);
      const Group answered = GroupOf(range, step, kAnswerLag);
      const size_t undecided_end = undecided_end_;
      if (located.count + asked.count + probed.count + answered.count == 4 * kGroupKeys)
          [[likely]] {
        TakeTurns(located, asked, probed, answered);
      } else {
        Locate(located);
        std::fill_n(batch_.outcomes.data() + answered.begin, answered.count, FetchOutcome::kHit);
        for (size_t i = 0; i < kGroupKeys; ++i) {
          if (i < asked.count) __builtin_prefetch(places_.lines[asked.place + i]);
          if (i < probed.count) PrefetchRow(ProbeFirst(probed.begin + i, probed.place + i));
          if (i >= answered.count) continue;
          Answer(answered.begin + i, answered.place + i, batch_.rows.row(answered.begin + i),
                 rows_);
        }
      }
      if (!batch_.versions.empty()) {
        PrefetchVersions(probed);
        AnswerVersions(answered);
      }
      for (size_t u = undecided_end; u < undecided_end_; ++u) AskSecond(undecided_[u % kUndecided]);
      // The keys of the previous step: their second lines have arrived by now.
      while (undecided_begin_ != undecided_end) Decide(undecided_[undecided_begin_++ % kUndecided]);
      for (; due_count_ > 0; --due_count_) ChangeStamp(due_[due_count_ - 1]);
    }
    if (kStreaming) Machine::FinishStreaming();
    counts.hits += range.end - range.begin - misses_ - absent_;
    counts.misses += misses_;
    counts.absent += absent_;
  }

 private:
  // The keys from `begin` on, and their entries in the ring.
  struct Group {
    size_t begin = 0;
    size_t place = 0;
    size_t count = 0;
  };

  // A key that was not in its first line.
  struct Undecided {
    size_t at = 0;
    size_t place = 0;
    uint64_t first_sequence = 0;
    IndexLine* second = nullptr;
  };
  static constexpr size_t kUndecided = 2 * kGroupKeys;

  // A stamp that a use changes, written at the end of the step.
  struct DueStamp {
    std::atomic<uint8_t>* stamp = nullptr;
    uint64_t partition = 0;
    uint8_t value = 0;
  };
  // The keys that a step probes, and those that it decides.
  static constexpr size_t kDueStampsMax = 2 * kGroupKeys;

  size_t row_bytes() const { return kRowLines > 0 ? kRowLines * kCacheLineBytes : row_bytes_; }
  size_t stride_bytes() const { return kRowLines > 0 ? row_bytes() : stride_bytes_; }

  // The group that is `lag` groups behind; an empty one before the first and after the last group.
  static Group GroupOf(FetchRange range, size_t step, size_t lag) {
    if (step < lag) return {};
    const size_t offset = (step - lag) * kGroupKeys;
    const size_t begin = std::min(range.end, range.begin + offset);
    return {begin, offset % kKeysUnderWay, std::min(kGroupKeys, range.end - begin)};
  }

  void TakeTurns(Group located, Group asked, Group probed, Group answered) {
    // Keys without a row set their outcome in their own turn.
    std::fill_n(batch_.outcomes.data() + answered.begin, kGroupKeys, FetchOutcome::kHit);
    std::byte* to = batch_.rows.row(answered.begin);
    typename Machine::Locator locator(place_shape_, batch_.keys.data() + located.begin);
#pragma GCC unroll 8
    for (size_t i = 0; i < kGroupKeys; ++i) {
      locator.Advance(i);
      __builtin_prefetch(places_.lines[asked.place + i]);
      const std::byte* const row = ProbeFirst(probed.begin + i, probed.place + i);
      Answer(answered.begin + i, answered.place + i, to, row);
      to += batch_.rows.stride_bytes;
    }
    locator.Store(located.place, places_);
  }

  void Locate(Group group) {
    for (size_t i = 0; i < group.count; ++i)
      places_.Set(group.place + i, PlaceOf(place_shape_, batch_.keys[group.begin + i]));
  }

  // Returns the row to prefetch; any row if there is none or it isn't known yet.
  const std::byte* ProbeFirst(size_t at, size_t place) {
    IndexLine& line = *places_.lines[place];
    const LineProbe probe = Machine::Probe(line, batch_.keys[at]);
    if (probe.slot != kNoSlot) [[likely]] {
      Stamp(places_.partitions[place], line, probe);
      return Find(place, probe.slot);
    }
    found_[place] = nullptr;
    undecided_[undecided_end_++ % kUndecided] = {at, place, probe.sequence};
    return rows_;
  }

  void AskSecond(Undecided& undecided) const {
    const size_t place = undecided.place;
    IndexLine* const lines =
        place_shape_.lines + places_.partitions[place] * place_shape_.line_count;
    undecided.second = lines + SecondLine(HashKey(batch_.keys[undecided.at], kL2HashSeed),
                                          static_cast<uint32_t>(places_.lines[place] - lines),
                                          static_cast<uint32_t>(place_shape_.line_count));
    __builtin_prefetch(undecided.second);
  }

  void Decide(const Undecided& undecided) {
    const SlotNumber slot = LookAgain(undecided);
    without_row_[undecided.place] = FetchOutcome::kMiss;
    if (slot != kNoSlot) PrefetchRow(Find(undecided.place, slot));
    if (!batch_.versions.empty()) PrefetchVersion(undecided.place);
  }

  // If the first line has changed meanwhile, the key may have moved there from the second one, so
  // it is searched again.
  SlotNumber LookAgain(const Undecided& undecided) {
    const Key key = batch_.keys[undecided.at];
    const uint64_t partition = places_.partitions[undecided.place];
    IndexLine& first = *places_.lines[undecided.place];
    uint64_t first_sequence = undecided.first_sequence;
    for (;;) {
      const LineProbe in_second = Machine::Probe(*undecided.second, key);
      if (in_second.slot != kNoSlot) {
        Stamp(partition, *undecided.second, in_second);
        return in_second.slot;
      }
      if (first.sequence.load(std::memory_order_acquire) == first_sequence) return kNoSlot;
      const LineProbe in_first = Machine::Probe(first, key);
      if (in_first.slot != kNoSlot) {
        Stamp(partition, first, in_first);
        return in_first.slot;
      }
      first_sequence = in_first.sequence;
    }
  }

  // Keeps the row of a slot for the answer. Returns any row for an absent entry.
  const std::byte* Find(size_t place, SlotNumber slot) {
    if (slot == kAbsentSlot) [[unlikely]] {
      found_[place] = nullptr;
      without_row_[place] = FetchOutcome::kAbsent;
      return rows_;
    }
    const size_t number = places_.partitions[place] * slot_count_ + slot - 1u;
    const std::byte* const row = rows_ + number * stride_bytes();
    found_[place] = row;
    return row;
  }

  // Written out, because the compiler treats a function that only prefetches as one without effect.
  __attribute__((always_inline)) void PrefetchRow(const std::byte* row) const {
    const size_t bytes = std::min(row_bytes(), kPrefetchBytesMax);
    if (bytes >= kFarPrefetchBytesMin) {
      for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
        __builtin_prefetch(row + offset, 0, 2);
    } else {
      for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
        __builtin_prefetch(row + offset, 0, 3);
    }
    if (kRowLines == 0) __builtin_prefetch(row + bytes - 1);
  }

  // Copies a row and prefetches the lines of the row `asked` between its stores.
  void Answer(size_t at, size_t place, std::byte* to, const std::byte* asked) {
    const std::byte* const row = found_[place];
    if (row == nullptr) [[unlikely]] {
      PrefetchRow(asked);
      const FetchOutcome outcome = without_row_[place];
      batch_.outcomes[at] = outcome;
      ++(outcome == FetchOutcome::kMiss ? misses_ : absent_);
      return;
    }
    CopyRow(to, row, asked);
  }

  const std::atomic<Version>& VersionOf(size_t place) const {
    return versions_[static_cast<size_t>(found_[place] - rows_) / stride_bytes()];
  }

  void PrefetchVersion(size_t place) const {
    if (found_[place] != nullptr) __builtin_prefetch(&VersionOf(place));
  }

  void PrefetchVersions(Group group) const {
    for (size_t i = 0; i < group.count; ++i) PrefetchVersion(group.place + i);
  }

  void AnswerVersions(Group group) const {
    for (size_t i = 0; i < group.count; ++i) {
      if (found_[group.place + i] == nullptr) continue;
      batch_.versions[group.begin + i] = VersionOf(group.place + i).load(std::memory_order_relaxed);
    }
  }

  __attribute__((always_inline)) void CopyRow(std::byte* to, const std::byte* from,
                                              const std::byte* asked) const {
    if constexpr (kRowLines == 0) {
      PrefetchRow(asked);
      kStreaming ? Machine::CopyStreaming(to, from, row_bytes())
                 : Machine::Copy(to, from, row_bytes());
    } else {
      constexpr int kCacheLevel = kRowLines * kCacheLineBytes >= kFarPrefetchBytesMin ? 2 : 3;
      for (size_t offset = 0; offset < kRowLines * kCacheLineBytes; offset += kCacheLineBytes) {
        __builtin_prefetch(asked + offset, 0, kCacheLevel);
        kStreaming ? Machine::CopyLineStreaming(to + offset, from + offset)
                   : Machine::CopyLine(to + offset, from + offset);
      }
    }
  }

  // A use writes its stamp only if that changes it, so that hot lines stay shared between cores.
  void Stamp(uint64_t partition, IndexLine& line, const LineProbe& probe) {
    if (probe.stamp != ticks_[partition].load(std::memory_order_relaxed)) [[unlikely]]
      due_[due_count_++] = {&line.stamps[probe.entry], partition, probe.stamp};
  }

  void ChangeStamp(const DueStamp& due) const {
    if (eviction_ != EvictionPolicy::kLeastUsed) {
      const uint8_t now = ticks_[due.partition].load(std::memory_order_relaxed);
      due.stamp->store(now, std::memory_order_relaxed);
      return;
    }
    // A count that doubles every 16 increments covers a wide range in a byte: an increment is made
    // with a probability of 2^-(value / 16).
    thread_local uint64_t random = 0x9e3779b97f4a7c15;
    random = random * 6364136223846793005 + 1442695040888963407;
    const uint64_t mask = (uint64_t{1} << (due.value / 16)) - 1;
    if (((random >> 40) & mask) == 0)
      due.stamp->store(static_cast<uint8_t>(due.value + 1), std::memory_order_relaxed);
  }

  const PlaceShape place_shape_;
  // Of the first partition; the others follow without a gap.
  const std::byte* const rows_;
  const std::atomic<Version>* const versions_;
  const std::atomic<uint8_t>* const ticks_;
  const size_t slot_count_;
  const size_t row_bytes_;
  const size_t stride_bytes_;
  const EvictionPolicy eviction_;
  const FetchBatch batch_;
  uint64_t misses_ = 0;
  uint64_t absent_ = 0;
  size_t undecided_begin_ = 0;
  size_t undecided_end_ = 0;
  std::array<Undecided, kUndecided> undecided_;
  size_t due_count_ = 0;
  std::array<DueStamp, kDueStampsMax> due_;
  Places places_;
  std::array<const std::byte*, kKeysUnderWay> found_;  // null = no row, and then ...
  std::array<FetchOutcome, kKeysUnderWay> without_row_;
};

// Flattened, so that the state of a fetch can stay in registers: out of line, each step would
// reload it after every stored row.
template <typename Machine, size_t kRowLines, bool kStreaming>
__attribute__((flatten)) void RunSteps(const FetchSource& source, const FetchBatch& batch,
                                       FetchRange range, FetchCounts& counts) {
  FetchSteps<Machine, kRowLines, kStreaming>(source, batch).Run(range, counts);
}

template <typename Machine, size_t kRowLines>
void RunSteps(const FetchSource& source, const FetchBatch& batch, FetchRange range, bool streaming,
              FetchCounts& counts) {
  auto* const run =
      streaming ? RunSteps<Machine, kRowLines, true> : RunSteps<Machine, kRowLines, false>;
  run(source, batch, range, counts);
}

// Chooses the steps for the rows of `source`, and streams only if the answer's alignment allows it.
template <typename Machine>
void FetchWith(const FetchSource& source, const FetchBatch& batch, FetchRange range, bool streaming,
               FetchCounts& counts) {
  const PartitionShape& shape = *source.shape;
  streaming = streaming && CanStream(batch);
  const bool whole_lines =
      shape.row_bytes % kCacheLineBytes == 0 && shape.stride_bytes == shape.row_bytes;
  switch (whole_lines ? shape.row_bytes / kCacheLineBytes : 0) {
    case 1:
      return RunSteps<Machine, 1>(source, batch, range, streaming, counts);
    case 2:
      return RunSteps<Machine, 2>(source, batch, range, streaming, counts);
    case 4:
      return RunSteps<Machine, 4>(source, batch, range, streaming, counts);
    case 8:
      return RunSteps<Machine, 8>(source, batch, range, streaming, counts);
    default:
      return RunSteps<Machine, 0>(source, batch, range, streaming, counts);
  }
}

}  // namespace
}  // namespace hps
