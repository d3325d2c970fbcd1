// Keys and rows of a lookup as NumPy files.
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

// Keys from an .npy file: [n] int64, uint64 (bit for bit), int32 or uint32 (widened).
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (dtype, rank, header), DATA_LOSS (the file
// is shorter than its header says), RESOURCE_EXHAUSTED (more than 64 Mi keys), with file, expected
// and found.
absl::StatusOr<std::vector<Key>> ReadNpyKeys(const std::string& path);

// Writes [row_count, dim] float32 rows, in order. The file appears under its name when it is
// complete, in place of an older one. For one thread; destroyed before Commit it leaves nothing.
class NpyRowWriter {
 public:
  virtual ~NpyRowWriter() = default;

  // Errors: NOT_FOUND (its directory), PERMISSION_DENIED, RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<NpyRowWriter>> Create(const std::string& path,
                                                              uint64_t row_count, uint32_t dim);

  // The next rows, packed. Errors: RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the disk fails).
  virtual absl::Status Append(std::span<const float> rows) = 0;

  // REQUIRES: all rows have been appended. Errors: as Append.
  virtual absl::Status Commit() = 0;
};

}  // namespace hps
