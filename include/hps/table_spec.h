// What a table is: its name, the shape of its rows, and the row that an absent key gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "hps/types.h"

namespace hps {

inline constexpr size_t kNameBytesMax = 120;      // of a model's or a table's name
inline constexpr size_t kRowBytesMax = 16 << 10;  // 16 KiB
inline constexpr size_t kDimMax = kRowBytesMax;   // further bounded by kRowBytesMax

// A value type: copyable, comparable, no invariant until ValidateTableSpec has accepted it.
struct TableSpec {
  std::string name;  // "<model>/<table>", each part [a-zA-Z0-9_-]{1,120}
  uint32_t dim = 0;  // elements per row
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::byte> default_row;  // row_bytes() bytes; empty = zeros

  size_t row_bytes() const { return size_t{dim} * ElementBytes(dtype); }

  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// Errors: INVALID_ARGUMENT, which says which part of the name is wrong and why.
absl::Status ValidateTableName(std::string_view name);

// Errors: INVALID_ARGUMENT for the name, a dim of 0, a row over kRowBytesMax, or a default row of
// another size than the rows.
absl::Status ValidateTableSpec(const TableSpec& spec);

// One table as the store has it.
struct TableInfo {
  struct Position {
    uint32_t partition = 0;
    uint64_t offset = 0;  // the next one to read
  };

  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;  // exact after an import, an estimate once updates have been applied
  uint64_t bytes = 0;      // on disk
  std::vector<Position> positions;  // in the update stream, by partition
};

}  // namespace hps
