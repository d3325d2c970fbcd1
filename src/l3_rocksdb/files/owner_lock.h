// Who writes to a store: one process at a time, a command or a server.
//
// Locks on ranges of the file STORE/hps.lock, held by an open file description: the system frees
// them when the process ends in whatever way, so there is nothing stale to be cleaned up. (RocksDB
// has a lock of its own, but that one can't be waited for and does not tell who holds it.)
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l3_rocksdb/options.h"

namespace hps {

// A byte of the lock file, locked until the object dies. Movable.
class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  // Makes the file when it is missing. Waits for another holder until `deadline`.
  // Errors: UNAVAILABLE (held by another), PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND.
  static absl::StatusOr<FileLock> Take(const std::string& file, int byte, Deadline deadline);

  // Whether somebody else holds the byte. A missing file is not locked. Errors: it can't be told
  // (no descriptor is left, no permission), which never means that the byte is free.
  static absl::StatusOr<bool> IsHeld(const std::string& file, int byte);

  bool held() const { return descriptor_ >= 0; }

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

// The right to write to a store.
class OwnerLock {
 public:
  // Waits for a command that has the store until `deadline`, but never for a server.
  // Errors: UNAVAILABLE, whose message says who has the store; see ServerHasStore.
  static absl::StatusOr<OwnerLock> Take(const std::string& store, OwnerRole role,
                                        Deadline deadline);

  // Errors: those of FileLock::IsHeld.
  static absl::StatusOr<bool> ServerHasStore(const std::string& store);
  static absl::StatusOr<bool> WriterHasStore(const std::string& store);

 private:
  OwnerLock(FileLock server, FileLock writer)
      : server_(std::move(server)), writer_(std::move(writer)) {}

  FileLock server_;  // held by servers only
  FileLock writer_;
};

// Serializes making and removing staging directories; held for moments.
absl::StatusOr<FileLock> TakeStagingLock(const std::string& store);

// Says that the store's owner commits staged imports: nobody else removes one that is ready.
// Taken, and asked for, while the staging lock is held. Errors: those of FileLock.
absl::StatusOr<FileLock> TakeCommitLock(const std::string& store);
absl::StatusOr<bool> CommitLockIsHeld(const std::string& store);

}  // namespace hps
