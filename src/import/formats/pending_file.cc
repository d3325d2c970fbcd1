#include "import/formats/pending_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr int kAttemptsMax = 8;  // a name has 64 random bits
constexpr int kLinksMax = 40;    // the limit of Linux
constexpr mode_t kPermissions = S_IRWXU | S_IRWXG | S_IRWXO;

// Names need not be secret, only unlikely to collide: CreateNew never opens an existing file.
uint64_t RandomNumber() {
  try {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  } catch (const std::exception&) {
    return static_cast<uint64_t>(RealClock().Now().time_since_epoch().count());
  }
}

std::string RandomName(const std::string& path) {
  const uint64_t number = RandomNumber();
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64, number);
  return absl::StrCat(path, ".", digits, ".partial");
}

}  // namespace

absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  std::filesystem::path place = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(place, error); ++links) {
    if (links == kLinksMax) return FileError(ELOOP, "can't write", path);
    const std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error) return FileError(error.value(), "can't write", path);
    place = place.parent_path() / target;
  }
  return place.string();
}

absl::StatusOr<PendingFile> PendingFile::Create(const std::string& path) {
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<File> file = File::CreateNew(RandomName(path));
    if (file.ok()) return PendingFile(*std::move(file), path);
    if (!absl::IsAlreadyExists(file.status()) || attempt == kAttemptsMax) return file.status();
  }
}

absl::StatusOr<PendingFile> PendingFile::CreateToReplace(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const std::string target, FollowLinks(path));
  HPS_ASSIGN_OR_RETURN(PendingFile file, Create(target));
  struct stat old {};
  if (::stat(target.c_str(), &old) != 0) return file;
  const char* const pending = file.file_.path().c_str();
  // A process without the right to change the owner keeps its own. chmod comes after chown, because
  // chown may clear mode bits.
  [[maybe_unused]] const int given = ::chown(pending, old.st_uid, old.st_gid);
  if (::chmod(pending, old.st_mode & kPermissions) != 0)
    return FileError(errno, "can't write", target);
  return file;
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      pending_(std::exchange(other.pending_, false)) {}

PendingFile::~PendingFile() {
  if (pending_) ::unlink(file_.path().c_str());
}

absl::Status PendingFile::Publish() {
  HPS_CHECK(pending_);
  const char* const from = file_.path().c_str();
  int result = ::renameat2(AT_FDCWD, from, AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // The file system lacks RENAME_NOREPLACE. link also refuses to replace an existing file.
    result = ::link(from, path_.c_str());
    if (result == 0) ::unlink(from);
  }
  if (result != 0) return FileError(errno, "can't write", path_);
  pending_ = false;
  return absl::OkStatus();
}

absl::Status PendingFile::Replace() {
  HPS_CHECK(pending_);
  if (std::rename(file_.path().c_str(), path_.c_str()) != 0)
    return FileError(errno, "can't write", path_);
  pending_ = false;
  return absl::OkStatus();
}

}  // namespace hps
