// The description of a table: name, row shape, and the row of an absent key.
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
inline constexpr size_t kDimMax = kRowBytesMax;   // kRowBytesMax limits it further

// A plain value; check it with ValidateTableSpec.
struct TableSpec {
  std::string name;  // "<model>/<table>", each part [a-zA-Z0-9_-]{1,120}
  uint32_t dim = 0;  // elements per row
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::byte> default_row;  // row_bytes() bytes; empty = zeros

  size_t row_bytes() const { return size_t{dim} * ElementBytes(dtype); }

  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// Errors: INVALID_ARGUMENT, with the invalid part of the name and the reason.
absl::Status ValidateTableName(std::string_view name);

// Errors: INVALID_ARGUMENT: an invalid name, a dim of 0, rows larger than kRowBytesMax, or a
// default row whose size is not row_bytes().
absl::Status ValidateTableSpec(const TableSpec& spec);

// A table in a store.
struct TableInfo {
  struct Position {
    uint32_t partition = 0;
    uint64_t offset = 0;  // of the next message to read
  };

  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;  // exact after an import; estimated once updates have been applied
  uint64_t bytes = 0;      // on disk
  std::vector<Position> positions;  // in the update stream, sorted by partition
  // The version that its model got by the last change of this table, or by the drop of another one.
  // 0: unknown (a staged import, or a store that an earlier hps wrote).
  uint64_t model_version = 0;
};

}  // namespace hps
