// An open page file, memory that direct I/O accepts, and the status of a failed system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace hps {

// Memory aligned to kPageBlockBytes. Null if there was none.
struct FreeAlignedBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAlignedBytes>;
// REQUIRES: `size` is a multiple of kPageBlockBytes.
AlignedBytes AllocateAligned(size_t size);

// "<what> <path>: <the system's message>". RESOURCE_EXHAUSTED if the disk, the quota, the memory or
// the descriptors are used up, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, else UNAVAILABLE.
absl::Status PageFileError(int error_number, const std::string& what, const std::string& path);

// Closes the file when it is destroyed. Reads and writes at offsets are thread-safe.
class PageFileHandle {
 public:
  // `direct`: reads past the page cache of the system. Where the file system has no direct I/O, the
  // log says so once, and what was read is dropped from the page cache again. Errors: those of
  // PageFileError.
  static absl::StatusOr<PageFileHandle> OpenForReading(const std::string& path, bool direct);
  // `direct`: writes past the page cache of the system, which saves the processor a copy. Where the
  // file system has no direct I/O, and for a write that is not aligned to kPageBlockBytes, the
  // writes go through the page cache from then on.
  static absl::StatusOr<PageFileHandle> CreateNew(const std::string& path, bool direct);

  int descriptor() const { return descriptor_.number(); }
  const std::string& path() const { return path_; }

  absl::StatusOr<uint64_t> Size() const;
  // Errors: DATA_LOSS (the file ends before), those of PageFileError.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> into) const;
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> from) const;
  // For what a queue has read: does what OpenForReading promises of files without direct I/O.
  void DropBehind(uint64_t offset, size_t size) const;
  // Asks the system to begin writing the range to the disk, so that Sync has little left to do. An
  // error shows up in Sync.
  void BeginSync(uint64_t offset, uint64_t size) const;
  // Makes the bytes and the size of the file durable, and its name.
  absl::Status Sync() const;

 private:
  PageFileHandle(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  bool TurnDirect() const;
  bool TurnBuffered() const;

  Descriptor descriptor_;
  std::string path_;
  bool drops_behind_ = false;
};

}  // namespace hps
