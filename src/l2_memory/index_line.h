// One cache line of the index: five keys, the slots of their rows, and stamps of their last use.
//
// One writer at a time (the partition's lock); readers take no lock and never wait. A key's slot is
// one store, so a reader gets the old row or the new one. Only a change of the *key* of an entry
// takes more than one store, in this order:
//
//   (the entry's slot is kNoSlot)   key = K;  sequence += 1;  slot = S
//
// A reader loads the sequence, the keys, the slots and the sequence again. If it has seen S, it has
// also seen the increment of the sequence: either its first load came before the increment, so the
// two loads differ and it reads again, or it came after it, and the key that it compared was K.
// A reader repeats only because a writer made progress, never because one stopped half-way.
//
// To move a key between its two lines, a writer stores it in the new line before it removes it from
// the old one. A reader that searches the lines in order and finds nothing loads the sequence of
// the first line again: if it is unchanged, the key was in neither line.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hps/types.h"

namespace hps {

// The number of a row's slot in its partition, from 1.
using SlotNumber = uint16_t;
inline constexpr SlotNumber kNoSlot = 0;           // the entry is free
inline constexpr SlotNumber kAbsentSlot = 0xffff;  // the key is known to be absent: it has no row
inline constexpr uint32_t kSlotsMax = 0xfffe;

struct alignas(64) IndexLine {
  static constexpr size_t kEntries = 5;

  std::array<std::atomic<Key>, kEntries> keys;
  std::atomic<uint64_t> sequence;  // incremented when an entry gets another key
  std::array<std::atomic<SlotNumber>, kEntries> slots;
  std::array<std::atomic<uint8_t>, kEntries> stamps;  // last use or use count; readers write it too
};
static_assert(sizeof(IndexLine) == 64);

// The result of a reader's search in a line.
struct LineProbe {
  SlotNumber slot = kNoSlot;
  uint8_t entry = 0;      // its index, if slot != kNoSlot
  uint8_t stamp = 0;      // of the entry, if slot != kNoSlot
  uint64_t sequence = 0;  // of the line, loaded before the search
};

// Selects among the entries of the mask `same`, whose keys matched after `sequence` was read, the
// one that is in use. A free entry keeps its last key, so two may match.
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

// Reads as if the line were loaded atomically. REQUIRES: an epoch guard is held.
//
// All keys are compared before any branch: the matching entry is unpredictable, and a mispredicted
// branch discards the work that the core has begun for the next keys.
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

// The two lines of a key among `line_count` >= 2. The lower half of the hash selects the first; a
// mix of the whole hash is the distance to the second (the upper bits select the partition).
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
