// A regular file, read and written at given offsets.
//
// Plain reads and writes, no mapping: what is resident is what was allocated, and a file that
// shrinks or fails under the reader is a status, not a signal. Every message names the file.
//
// Reads and writes at offsets are thread-safe; a File moves, never copies, and closes itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

class File {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT for anything but a regular file.
  static absl::StatusOr<File> OpenForReading(const std::string& path);

  // Errors: ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND (its directory).
  static absl::StatusOr<File> CreateNew(const std::string& path);

  // A file in `directory` without a name: it is gone when it is closed, whatever ends the process.
  // Errors: those of CreateNew.
  static absl::StatusOr<File> CreateNameless(const std::string& directory);

  // A second owner of the same open file. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<File> Duplicate() const;

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t bytes_at_open() const { return bytes_at_open_; }

  // Fills all of `into`. Errors: DATA_LOSS (the file ends before that, or its disk fails).
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> into) const;

  // Errors: RESOURCE_EXHAUSTED (disk full, quota), UNAVAILABLE (the disk fails).
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> from) const;

  // Returns when all that was written is on the disk.
  absl::Status Sync() const;

 private:
  File(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_ = -1;
  std::string path_;
  uint64_t bytes_at_open_ = 0;
};

// "what FILE: the system's reason", with the code that fits `error_number`.
absl::Status FileError(int error_number, const std::string& what, const std::string& path);

}  // namespace hps
