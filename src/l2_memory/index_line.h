// One cache line of the index: five keys, the slots of their rows, and when they were last used.
//
// One writer at a time (the partition's lock); readers take no lock and never wait. A key's slot is
// one store, so a reader gets the old row or the new one. Only a change of the *key* of an entry
// takes more than one store, in this order:
//
//   (the entry's slot is kNoSlot)   key = K;  sequence += 1;  slot = S
//
// A reader loads the sequence, the keys, the slots and the sequence again. If it has seen S, it
// has seen the step of the sequence too: either the first load of it was before the step, and the
// two loads differ (it reads again), or it was after it, and the key that it compared was K.
// Readers run again only because a writer went on, never because one stopped half-way.
//
// A key moves between its two lines by being written to the new one before it is taken from the
// old one. A reader that goes through the lines in their order and finds nothing looks at the
// sequence of the first one again: unchanged, the key was in neither line.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hps/types.h"

namespace hps {

// The place of a row in its partition, from 1.
using SlotNumber = uint16_t;
inline constexpr SlotNumber kNoSlot = 0;           // the entry is free
inline constexpr SlotNumber kAbsentSlot = 0xffff;  // the key is known to be absent: no row
inline constexpr uint32_t kSlotsMax = 0xfffe;

struct alignas(64) IndexLine {
  static constexpr size_t kEntries = 5;

  std::array<std::atomic<Key>, kEntries> keys;
  std::atomic<uint64_t> sequence;  // steps when an entry gets another key
  std::array<std::atomic<SlotNumber>, kEntries> slots;
  std::array<std::atomic<uint8_t>, kEntries> stamps;  // last use or use count; readers write it too
};
static_assert(sizeof(IndexLine) == 64);

// What a reader found in a line.
struct LineProbe {
  SlotNumber slot = kNoSlot;
  uint8_t entry = 0;      // where, if slot != kNoSlot
  uint8_t stamp = 0;      // of the entry, if slot != kNoSlot
  uint64_t sequence = 0;  // of the line, as of before it was looked at
};

// The entry that is taken among those of the mask `same`, whose keys were found to be the one that
// is looked for after `sequence` was read. A free entry keeps its last key, so there may be two.
inline LineProbe TakenEntry(const IndexLine& line, unsigned same, uint64_t sequence) {
  for (; same != 0; same &= same - 1) {
    const auto entry = static_cast<unsigned>(std::countr_zero(same));
    const SlotNumber slot = line.slots[entry].load(std::memory_order_seq_cst);
    if (slot == kNoSlot) [[unlikely]]
      continue;
    return {slot, static_cast<uint8_t>(entry), line.stamps[entry].load(std::memory_order_relaxed),
            sequence};
  }
  return {.sequence = sequence};
}

// Reads like one atomic look at the line. REQUIRES: an epoch guard is held.
//
// All keys are compared before anything is decided: which entry has the key can't be foreseen, and
// a core that guesses wrong throws away what it has begun for the keys after it.
inline LineProbe ProbeLine(const IndexLine& line, Key key) {
  for (;;) {
    const uint64_t sequence = line.sequence.load(std::memory_order_acquire);
    unsigned same = 0;
    for (size_t i = 0; i < IndexLine::kEntries; ++i)
      same |= unsigned{line.keys[i].load(std::memory_order_acquire) == key} << i;
    const LineProbe probe = TakenEntry(line, same, sequence);
    if (probe.slot == kNoSlot || line.sequence.load(std::memory_order_acquire) == sequence)
      return probe;
  }
}

// The two lines of a key among `line_count` >= 2: the lower half of the hash names the first, a mix
// of all of it the distance to the second (the partition is named by the upper bits).
struct LinePair {
  uint32_t first = 0;
  uint32_t second = 0;
};

inline uint32_t FirstLine(uint64_t hash, uint32_t line_count) {
  return static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(hash)} * line_count) >> 32);
}

inline uint32_t SecondLine(uint64_t hash, uint32_t first, uint32_t line_count) {
  const uint64_t mixed = (hash * 0x9e3779b97f4a7c15) >> 32;
  const uint32_t second = first + 1 + static_cast<uint32_t>((mixed * (line_count - 1)) >> 32);
  return second < line_count ? second : second - line_count;
}

inline LinePair LinesOf(uint64_t hash, uint32_t line_count) {
  const uint32_t first = FirstLine(hash, line_count);
  return {first, SecondLine(hash, first, line_count)};
}

}  // namespace hps
