#include "l3_rocksdb/files/store_owner.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"

namespace hps {
namespace {

std::string UserName(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(size_t{16} << 10);
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return absl::StrCat("'", found->pw_name, "'");
  return absl::StrCat(user);
}

// The mode bits, of those for read, write and execute, that all who may write to the folder `store`
// need.
mode_t SharedMode(const struct stat& store) {
  mode_t mode = S_IRWXU;
  if ((store.st_mode & S_IWGRP) != 0) mode |= S_IRWXG;
  if ((store.st_mode & S_IWOTH) != 0) mode |= S_IRWXO;
  return mode;
}

// Whether the owner of `store`, or all of the users that share it, have the rights of SharedMode.
bool IsShared(const struct stat& store, const struct stat& file, mode_t execute) {
  const auto has = [&](mode_t bits) {
    bits &= ~execute;
    return (file.st_mode & bits) == bits;
  };
  if (store.st_uid == 0) return true;  // root needs no rights
  if (file.st_uid == store.st_uid) return has(S_IRWXU);
  const bool by_group = (store.st_mode & S_IWGRP) != 0 && file.st_gid == store.st_gid;
  return (by_group && has(S_IRWXG)) || ((store.st_mode & S_IWOTH) != 0 && has(S_IRWXO));
}

absl::Status GiveOpened(const struct stat& store, int descriptor, const std::string& path) {
  const std::string what = absl::StrCat("giving '", path, "' to the store's owner");
  struct stat file {};
  if (fstat(descriptor, &file) != 0) return absl::ErrnoToStatus(errno, what);
  const bool is_directory = S_ISDIR(file.st_mode);
  if (!is_directory && (!S_ISREG(file.st_mode) || file.st_nlink > 1)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": expected a folder or a file with one name"));
  }
  const mode_t execute = is_directory ? 0 : S_IXUSR | S_IXGRP | S_IXOTH;
  // A change that is not permitted is no error yet: the check at the end finds what is missing.
  if (file.st_uid != store.st_uid || file.st_gid != store.st_gid) {
    if (fchown(descriptor, store.st_uid, store.st_gid) != 0)
      static_cast<void>(fchown(descriptor, static_cast<uid_t>(-1), store.st_gid) == 0);
  }
  const mode_t wanted = SharedMode(store) & ~execute;
  if ((file.st_mode & wanted) != wanted)
    static_cast<void>(fchmod(descriptor, (file.st_mode & 07777) | wanted) == 0);
  if (fstat(descriptor, &file) != 0) return absl::ErrnoToStatus(errno, what);
  if (IsShared(store, file, execute)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("'", path, "': the store belongs to user ", UserName(store.st_uid),
                   ", who could not read and remove this file of user ", UserName(file.st_uid),
                   ": import as the store's owner, or as root"));
}

absl::StatusOr<Descriptor> Open(int folder, const std::string& name, const std::string& path) {
  Descriptor opened(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (opened.number() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening '", path, "'"));
  return opened;
}

bool May(const std::string& path, int mode) {
  return faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 || errno != EACCES;
}

}  // namespace

absl::Status GiveToStoreOwner(const std::string& store, const std::string& path, GiveFiles files) {
  struct stat owner {};
  if (stat(store.c_str(), &owner) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("store '", store, "'"));
  HPS_ASSIGN_OR_RETURN(const Descriptor folder, Open(AT_FDCWD, path, path));
  HPS_RETURN_IF_ERROR(GiveOpened(owner, folder.number(), path));
  if (files == GiveFiles::kNone) return absl::OkStatus();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    HPS_ASSIGN_OR_RETURN(const Descriptor file,
                         Open(folder.number(), entry.path().filename(), entry.path()));
    HPS_RETURN_IF_ERROR(GiveOpened(owner, file.number(), entry.path()));
  }
  return absl::ErrnoToStatus(error.value(), absl::StrCat("listing '", path, "'"));
}

absl::Status NotPermitted(const std::string& path, const std::string& name, const char* what) {
  struct stat found {};
  const bool is_known = lstat(path.c_str(), &found) == 0;
  const std::string owner = is_known ? UserName(found.st_uid) : "(unknown)";
  const std::string why =
      absl::StrCat(" belongs to user ", owner, ", and user ", UserName(geteuid()), " may not ",
                   what, " it: change its owner, or remove it and import again");
  LogError(absl::StrCat("'", path, "'", why));
  return Public(absl::FailedPreconditionError(absl::StrCat(name, why)));
}

absl::Status CheckMayTake(const std::string& path, const std::string& name) {
  if (!May(path, R_OK | X_OK)) return NotPermitted(path, name, "read");
  if (!May(path, W_OK) || !May(std::filesystem::path(path).parent_path(), W_OK | X_OK))
    return NotPermitted(path, name, "remove");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (!May(entry.path(), R_OK)) return NotPermitted(entry.path(), name, "read");
  return absl::OkStatus();
}

}  // namespace hps
