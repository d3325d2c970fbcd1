// A sorted run: a part of a table in ascending key order, in memory or spilled to a file.
//
// Keys are sorted as unsigned numbers in the signed order of the keys. Every row keeps its
// position, its row number in the table's files, so that an error can name the positions of
// duplicates. A spilled row is a record: ordered key and position (8 bytes each), then the row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "hps/types.h"
#include "import/memory_budget.h"

namespace hps {

using OrderedKey = uint64_t;

constexpr OrderedKey ToOrderedKey(Key key) { return static_cast<uint64_t>(key) ^ (1ULL << 63); }
constexpr Key FromOrderedKey(OrderedKey key) { return static_cast<Key>(key ^ (1ULL << 63)); }

struct SortEntry {
  OrderedKey key = 0;
  uint64_t position = 0;
};

// Sorts by key; stable. A radix sort with 11 bits per digit, least significant digit first. Skips
// digits that are equal in all keys. REQUIRES: `scratch` is as large as `entries`.
void SortEntries(std::span<SortEntry> entries, std::span<SortEntry> scratch);

inline constexpr size_t kRecordHeadBytes = sizeof(SortEntry);

struct SortedRun {
  uint64_t row_count = 0;
  std::vector<OrderedKey> samples;  // at regular distances; used to split the key range

  // In memory: sorted entries, and rows indexed by position - first_position.
  BudgetBuffer<SortEntry> entries;
  BudgetBuffer<std::byte> rows;
  uint64_t first_position = 0;

  // Spilled: records beginning at spill_offset. Null = in memory.
  const File* spill = nullptr;
  uint64_t spill_offset = 0;
};

// Returns the number of keys in the run that are less than `key`. Errors: DATA_LOSS.
absl::StatusOr<uint64_t> LowerBound(const SortedRun& run, size_t row_bytes, OrderedKey key);

// Rows [begin, end) of a run.
struct RunSlice {
  const SortedRun* run = nullptr;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Iterates over a slice. For one thread; the run must outlive the cursor.
class RunCursor {
 public:
  // `buffer` holds at least one record for a spilled run, and may be empty for one in memory.
  RunCursor(const RunSlice& slice, size_t row_bytes, std::span<std::byte> buffer);

  // Loads the next row, at first the first one. done() is true after the last row. Errors:
  // DATA_LOSS.
  absl::Status Advance();

  bool done() const { return done_; }
  OrderedKey key() const { return entry_.key; }
  uint64_t position() const { return entry_.position; }
  const std::byte* row() const { return row_; }

 private:
  absl::Status Refill();
  void LoadFromMemory();

  RunSlice slice_;
  size_t row_bytes_;
  std::span<std::byte> buffer_;
  uint64_t next_;           // row number in the run
  size_t buffer_next_ = 0;  // offset in bytes
  size_t buffer_end_ = 0;
  bool done_ = false;
  SortEntry entry_;
  const std::byte* row_ = nullptr;
};

}  // namespace hps
