// Tables and vectors in NumPy's format.
//
// A table is a directory with `keys.npy`, [n] int64, uint64, int32 or uint32, and `rows.npy`, [n,
// dim] float32 or float16, all little-endian and in C order. NumPy has no bfloat16. If the caller
// requests bfloat16, uint16 elements (or two raw bytes) are its bit patterns.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "import/formats/array_reader.h"
#include "import/formats/table_reader.h"

namespace hps {

struct NpyKeys {
  KeyArray array;
  uint64_t count = 0;
};

// Opens and validates a key array. Errors: those of OpenNpyTable.
absl::StatusOr<NpyKeys> OpenNpyKeys(const std::string& path);

// `dtype` selects how uint16 elements are interpreted; other elements define their type. Errors:
// those of opening the files; INVALID_ARGUMENT with file, expected and found.
absl::StatusOr<std::unique_ptr<TableReader>> OpenNpyTable(const std::string& directory,
                                                          std::optional<Dtype> dtype);

// Reads a row of `dim` elements from the file at `path` and converts it to `dtype`. The file holds
// [dim] float32, float16, or bfloat16 as above. Errors: those of OpenNpyTable.
absl::StatusOr<std::vector<std::byte>> ReadNpyRow(const std::string& path, uint32_t dim,
                                                  Dtype dtype);

}  // namespace hps
