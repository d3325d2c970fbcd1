#include "l3_rocksdb/files/owner_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/files/store_owner.h"

namespace hps {
namespace {

constexpr int kWriterByte = 0;
constexpr int kServerByte = 1;
constexpr int kStagingByte = 2;
constexpr int kCommitByte = 3;
// Interval between attempts to take a lock. The system's own wait, F_OFD_SETLKW, has no deadline.
// Only a signal ends it, and signals belong to the process, not to a library; a helper thread in
// this wait could not be stopped. inotify reports the holder's close before the kernel has released
// the lock, so attempts would still be needed, and it reports nothing about holders on other
// machines. Only commands wait for each other, for seconds at most: a few hundred cheap calls.
constexpr int kRetryMs = 20;
constexpr Duration kStagingLockTimeout = std::chrono::seconds(10);

std::string LockFileOf(const std::string& store) { return store + "/hps.lock"; }

struct flock Range(int byte) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  return range;
}

// No free descriptor in the process or the system.
absl::Status SystemError(const std::string& what) {
  const absl::Status status = absl::ErrnoToStatus(errno, what);
  if (errno != EMFILE && errno != ENFILE) return status;
  return absl::ResourceExhaustedError(status.message());
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::string& file, int byte, Deadline deadline) {
  FileLock lock(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.descriptor_.number() < 0) return SystemError(absl::StrCat("lock file '", file, "'"));
  // Another user who may write to the store may be the next to lock it.
  const std::string store = std::filesystem::path(file).parent_path();
  GiveToStoreOwner(store, file, GiveFiles::kNone).IgnoreError();
  for (;;) {
    struct flock range = Range(byte);
    if (fcntl(lock.descriptor_.number(), F_OFD_SETLK, &range) == 0) return lock;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR)
      return SystemError(absl::StrCat("lock file '", file, "'"));
    if (RealClock().Now() >= deadline)
      return absl::UnavailableError(absl::StrCat("lock file '", file, "' is held"));
    poll(nullptr, 0, kRetryMs);
  }
}

absl::StatusOr<bool> FileLock::IsHeld(const std::string& file, int byte) {
  const FileLock opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string what = absl::StrCat("lock file '", file, "'");
  if (opened.descriptor_.number() < 0) {
    if (errno == ENOENT) return false;
    return SystemError(what);
  }
  struct flock range = Range(byte);
  if (fcntl(opened.descriptor_.number(), F_OFD_GETLK, &range) != 0) return SystemError(what);
  return range.l_type != F_UNLCK;
}

absl::StatusOr<OwnerLock> OwnerLock::Take(const std::string& store, OwnerRole role,
                                          Deadline deadline) {
  const std::string file = LockFileOf(store);
  FileLock server;
  if (role == OwnerRole::kServer) {
    // Taken first, so that a command that now fails to take the writer's byte can name the kind of
    // holder. Another server may run for months, so this attempt does not wait.
    absl::StatusOr<FileLock> taken = FileLock::Take(file, kServerByte, RealClock().Now());
    if (absl::IsUnavailable(taken.status())) {
      return absl::UnavailableError(
          absl::StrCat("store '", store, "' is open for writing in another server"));
    }
    HPS_RETURN_IF_ERROR(taken.status());
    server = *std::move(taken);
  }
  for (;;) {
    absl::StatusOr<FileLock> writer = FileLock::Take(file, kWriterByte, RealClock().Now());
    if (writer.ok()) return OwnerLock(std::move(server), *std::move(writer));
    if (!absl::IsUnavailable(writer.status())) return writer.status();
    if (role == OwnerRole::kCommand) {
      HPS_ASSIGN_OR_RETURN(const bool by_server, ServerHasStore(store));
      if (by_server) {
        return absl::UnavailableError(
            absl::StrCat("store '", store, "' is open for writing in a server"));
      }
    }
    if (RealClock().Now() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("store '", store, "' is open for writing in another process"));
    }
    poll(nullptr, 0, kRetryMs);
  }
}

bool OwnerLock::FileExists(const std::string& store) {
  return access(LockFileOf(store).c_str(), F_OK) == 0;
}

absl::StatusOr<bool> OwnerLock::ServerHasStore(const std::string& store) {
  return FileLock::IsHeld(LockFileOf(store), kServerByte);
}

absl::StatusOr<bool> OwnerLock::WriterHasStore(const std::string& store) {
  return FileLock::IsHeld(LockFileOf(store), kWriterByte);
}

absl::StatusOr<FileLock> TakeStagingLock(const std::string& store) {
  return FileLock::Take(LockFileOf(store), kStagingByte,
                        DeadlineAfter(RealClock(), kStagingLockTimeout));
}

absl::StatusOr<FileLock> TakeCommitLock(const std::string& store) {
  return FileLock::Take(LockFileOf(store), kCommitByte, RealClock().Now());
}

absl::StatusOr<bool> CommitLockIsHeld(const std::string& store) {
  return FileLock::IsHeld(LockFileOf(store), kCommitByte);
}

}  // namespace hps
