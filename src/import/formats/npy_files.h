// NumPy files with the keys and rows of a lookup.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps {

// Reads keys from an .npy file: [n] int64, uint64 (bits kept), int32 or uint32 (widened). Errors,
// with file, expected and found: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (dtype, rank,
// header), DATA_LOSS (the file is shorter than its header says), RESOURCE_EXHAUSTED (more than 64
// Mi keys).
absl::StatusOr<std::vector<Key>> ReadNpyKeys(const std::string& path);

// Writes [row_count, dim] float32 rows in order. Commit gives the complete file its name and
// replaces an older file. If the writer is destroyed before Commit, it removes its file. For one
// thread.
class NpyRowWriter {
 public:
  virtual ~NpyRowWriter() = default;

  // Errors: NOT_FOUND (no such directory), PERMISSION_DENIED, RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<NpyRowWriter>> Create(const std::string& path,
                                                              uint64_t row_count, uint32_t dim);

  // Writes the next rows, packed. Errors: RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the disk
  // fails).
  virtual absl::Status Append(std::span<const float> rows) = 0;

  // REQUIRES: all rows have been appended. Errors: those of Append.
  virtual absl::Status Commit() = 0;
};

}  // namespace hps
