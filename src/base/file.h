// A regular file that is read and written at given offsets.
//
// Uses plain reads and writes instead of a memory mapping, so memory use is what was allocated. A
// file that shrinks, or whose disk fails, gives a status instead of a signal. Every message names
// the file.
//
// Reads and writes at offsets are thread-safe. A File is movable, not copyable; the destructor
// closes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace hps {

class File {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file).
  static absl::StatusOr<File> OpenForReading(const std::string& path);

  // Errors: ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND (no such directory).
  static absl::StatusOr<File> CreateNew(const std::string& path);

  // Opens a file for reading and writing. A new one is for the owner only. Errors: those of
  // CreateNew but ALREADY_EXISTS; INVALID_ARGUMENT (not a regular file).
  static absl::StatusOr<File> OpenOrCreate(const std::string& path);

  // Creates a file without a name in `directory`. The system deletes it when it is closed, also
  // when the process is killed. Errors: those of CreateNew.
  static absl::StatusOr<File> CreateNameless(const std::string& directory);

  // Returns a second owner of the same open file. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<File> Duplicate() const;

  const std::string& path() const { return path_; }
  uint64_t bytes_at_open() const { return bytes_at_open_; }

  // Fills all of `into`. Errors: DATA_LOSS (the file is too short, or its disk fails).
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> into) const;

  // The bytes_at_open(). Errors: those of ReadAt.
  absl::StatusOr<std::string> ReadAll() const;

  // Errors: RESOURCE_EXHAUSTED (disk full, quota), UNAVAILABLE (the disk fails).
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> from) const;

  // Shortens the file to its first `bytes`. Errors: those of WriteAt.
  absl::Status Truncate(uint64_t bytes) const;

  // Makes all written bytes durable.
  absl::Status Sync() const;

 private:
  File(Descriptor descriptor, std::string path)
      : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  // The file of an open descriptor, with its size. Errors: INVALID_ARGUMENT (not a regular file).
  static absl::StatusOr<File> Examined(int descriptor, const std::string& path);

  Descriptor descriptor_;
  std::string path_;
  uint64_t bytes_at_open_ = 0;
};

// Makes the names of a directory's files durable.
absl::Status SyncDirectory(const std::string& path);

// Returns "<what> <path>: <the system's message>" with the status code for `error_number`.
absl::Status FileError(int error_number, const std::string& what, const std::string& path);

}  // namespace hps
