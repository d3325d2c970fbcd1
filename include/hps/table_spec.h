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

// How far a table has consumed one partition of its update stream. A table that takes direct
// changes instead has one position: the counter of its changes, as that of partition 0 in
// kDirectGeneration.
struct StreamPosition {
  uint32_t partition = 0;
  uint16_t generation = 1;  // of the topic; increases when its partition count changes
  uint64_t offset = 0;      // the next offset to read

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};
inline constexpr uint16_t kDirectGeneration = 0;

// Where a table begins to read its update stream after an import.
struct UpdateStart {
  enum class Kind : uint8_t { kBeginning, kEnd, kTime };
  Kind kind = Kind::kBeginning;
  // kTime: the first record with this time stamp (since 1970) or a later one. kEnd: when the import
  // began; 0 = unknown.
  int64_t time_ms = 0;

  friend bool operator==(const UpdateStart&, const UpdateStart&) = default;
};

// A table in a store.
struct TableInfo {
  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;  // exact after an import; estimated once updates have been applied
  uint64_t bytes = 0;      // on disk
  std::vector<StreamPosition> positions;  // sorted by partition
  // The version that its model got by the last change of this table, or by the drop of another one.
  // 0: unknown (a staged import).
  uint64_t model_version = 0;
  UpdateStart update_start{};
  // Records of the update stream that its retention deleted before this store had read them, since
  // the table's import. Above 0 the table may be stale until it is imported again.
  uint64_t update_records_lost = 0;
  // Names this version of the rows on all nodes that share a level 2 (ImportRequest::import_id);
  // empty = the node shares none of them.
  std::string import_id{};
};

// Bytes of TableInfo::import_id.
inline constexpr size_t kImportIdBytesMax = 64;

// Errors: INVALID_ARGUMENT: not [a-zA-Z0-9_.-]{1,64}.
absl::Status ValidateImportId(std::string_view id);

}  // namespace hps
