// A level 2 whose rows a device reads by itself, out of this process's memory: an index of 64-byte
// lines over rows that stay as they are once a line names them.
//
// A key has two lines of one partition. A reader takes a whole line, finds its key, reads the row,
// and looks at the whole line again. The second look is issued after the first one has arrived; it
// may travel together with the row. The row is the key's if the second look shows the same key,
// slot and sequence. A key that is not found may be held all the same, for instance because it is
// being moved to its other line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/hash.h"
#include "hps/types.h"

namespace hps {

// Where the memory is; addresses are the same on the host and on all devices.
struct DirectRows {
  const std::byte* lines = nullptr;  // [partition_count][line_count], 64 bytes each
  const std::byte* rows = nullptr;   // [partition_count][slot_count], stride_bytes each
  uint32_t partition_count = 0;
  uint32_t line_count = 0;    // of a partition
  uint32_t slot_count = 0;    // of a partition
  uint32_t stride_bytes = 0;  // a multiple of 16, as the addresses and the rows' bytes are
};

// A line (l2_memory/index_line.h): the keys of its entries, a sequence that counts changes of keys,
// and the slots of their rows in the partition, from 1. 0 and kDirectAbsentSlot are no rows.
inline constexpr uint32_t kDirectLineBytes = 64;
inline constexpr uint32_t kDirectLineEntries = 5;
inline constexpr uint32_t kDirectSequenceOffset = 40;
inline constexpr uint32_t kDirectSlotsOffset = 48;
inline constexpr uint32_t kDirectAbsentSlot = 0xffff;

// A key's partition, and the numbers of its lines there; most keys are in the first one.
struct DirectPlace {
  uint32_t partition = 0;
  uint32_t first = 0;
  uint32_t second = 0;
};

// The same as HashToRange and LinesOf (l2_memory/index_line.h), which is tested. Also for kernels.
constexpr DirectPlace DirectPlaceOf(const DirectRows& direct, Key key) {
  const uint64_t hash = HashKey(key, kL2HashSeed);
  const uint64_t mixed = (hash * 0x9e3779b97f4a7c15) >> 32;
  DirectPlace place;
  place.partition = static_cast<uint32_t>(HashToRange(hash, direct.partition_count));
  place.first =
      static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(hash)} * direct.line_count) >> 32);
  const uint32_t second =
      place.first + 1 + static_cast<uint32_t>((mixed * (direct.line_count - 1)) >> 32);
  place.second = second < direct.line_count ? second : second - direct.line_count;
  return place;
}

// What a table of level 2 is, besides a LossyTable, if devices can read its rows. Thread-safe.
class DirectReadable {
 public:
  virtual ~DirectReadable() = default;

  // Begins reads by a device; returns their number. From here to EndDirectReads no row that a line
  // names is overwritten. Until then the table lacks the slots of rows that are replaced or
  // evicted, so reads must end within milliseconds, also where the device does not answer; what the
  // device reads later must not be believed. Empty: the table's memory is not pinned, or too many
  // reads are under way.
  virtual std::optional<size_t> BeginDirectReads() = 0;
  virtual void EndDirectReads(size_t reads) = 0;

  // Valid while reads are under way.
  virtual const DirectRows& direct_rows() const = 0;

  // The table will be freed soon: its memory is not pinned from here on, unless all of it is pinned
  // already.
  virtual void StopPinning() = 0;
};

}  // namespace hps
