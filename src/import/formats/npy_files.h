// NumPy files with the keys and rows of a lookup.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "import/formats/pending_file.h"

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
  // Errors: NOT_FOUND (no such directory), PERMISSION_DENIED, RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
  static absl::StatusOr<NpyRowWriter> Create(const std::string& path, uint64_t row_count,
                                             uint32_t dim);

  // Writes the next rows, packed. Errors: RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the disk
  // fails).
  absl::Status Append(std::span<const float> rows) { return Write(std::as_bytes(rows)); }

  // REQUIRES: all rows have been appended. Errors: those of Append.
  absl::Status Commit();

 private:
  NpyRowWriter(PendingFile pending, uint64_t bytes) : pending_(std::move(pending)), bytes_(bytes) {}
  absl::Status Write(std::span<const std::byte> bytes);

  PendingFile pending_;
  uint64_t bytes_;  // of the whole file
  uint64_t written_bytes_ = 0;
};

}  // namespace hps
