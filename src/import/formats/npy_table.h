// Tables and vectors in NumPy's format.
//
// A table is a directory with `keys.npy`, [n] int64, uint64, int32 or uint32, and `rows.npy`,
// [n, dim] float32 or float16, all little-endian and in C order. NumPy has no bfloat16: uint16 (or
// two raw bytes) holds its bit patterns when the caller says so.
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

// The validated array of keys in a file. Errors: as OpenNpyTable.
absl::StatusOr<NpyKeys> OpenNpyKeys(const std::string& path);

// `dtype` says how uint16 elements are meant; other elements tell it themselves.
// Errors: those of opening the files; INVALID_ARGUMENT with file, expected and found.
absl::StatusOr<std::unique_ptr<TableReader>> OpenNpyTable(const std::string& directory,
                                                          std::optional<Dtype> dtype);

// A row of `dim` elements in `dtype`, read from the file at `path`: [dim] float32 or float16 (or
// bfloat16 as above), converted. Errors: as OpenNpyTable.
absl::StatusOr<std::vector<std::byte>> ReadNpyRow(const std::string& path, uint32_t dim,
                                                  Dtype dtype);

}  // namespace hps
