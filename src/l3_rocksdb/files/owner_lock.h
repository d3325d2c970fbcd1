// The lock of a store's writer. One process at a time, a command or a server, writes to a store.
//
// These are locks on byte ranges of the file STORE/hps.lock, held by an open file description. The
// system releases them however the process ends, so no stale lock remains. (RocksDB's own lock does
// not allow waiting and does not name its holder.)
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "l3_rocksdb/options.h"

namespace hps {

// A lock on one byte of the lock file, released by the destructor. Movable.
class FileLock {
 public:
  FileLock() = default;

  // Creates the file if it is missing. Waits for another holder until `deadline`. Errors:
  // UNAVAILABLE (held by another process), PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND.
  static absl::StatusOr<FileLock> Take(const std::string& file, int byte, Deadline deadline);

  // True if another open file description holds the lock. A missing file is not locked. Errors: the
  // state is unknown (no free descriptor, no permission); the caller must not assume that the byte
  // is free.
  static absl::StatusOr<bool> IsHeld(const std::string& file, int byte);

  bool held() const { return descriptor_.number() >= 0; }

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  Descriptor descriptor_;
};

// The exclusive right to write to a store.
class OwnerLock {
 public:
  // Waits until `deadline` for a command that holds the store, but not for a server. Errors:
  // UNAVAILABLE (the message names the kind of holder; see ServerHasStore).
  static absl::StatusOr<OwnerLock> Take(const std::string& store, OwnerRole role,
                                        Deadline deadline);

  // Whether the store has its lock file. Without it, it has no writer.
  static bool FileExists(const std::string& store);
  // Errors: those of FileLock::IsHeld.
  static absl::StatusOr<bool> ServerHasStore(const std::string& store);
  static absl::StatusOr<bool> WriterHasStore(const std::string& store);

 private:
  OwnerLock(FileLock server, FileLock writer)
      : server_(std::move(server)), writer_(std::move(writer)) {}

  FileLock server_;  // only servers hold it
  FileLock writer_;
};

// Serializes the creation and removal of staging directories. Held briefly.
absl::StatusOr<FileLock> TakeStagingLock(const std::string& store);

// While the commit lock is held, the store's owner is committing staged imports; no other process
// may remove one that is ready. Take or query it only while holding the staging lock. Errors: those
// of FileLock.
absl::StatusOr<FileLock> TakeCommitLock(const std::string& store);
absl::StatusOr<bool> CommitLockIsHeld(const std::string& store);

}  // namespace hps
