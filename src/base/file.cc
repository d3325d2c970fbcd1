#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// Linux transfers at most 2 GiB - 4 KiB in one call.
constexpr size_t kTransferBytesMax = size_t{1} << 30;

}  // namespace

absl::Status FileError(int error_number, const std::string& what, const std::string& path) {
  const absl::Status status = absl::ErrnoToStatus(error_number, absl::StrCat(what, " ", path));
  switch (error_number) {
    case EIO:
      return absl::UnavailableError(status.message());
    case EISDIR:
    case ELOOP:
    case ENOTDIR:
      return absl::InvalidArgumentError(status.message());
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(status.message());
    default:
      return status;
  }
}

absl::StatusOr<File> File::Examined(int descriptor, const std::string& path) {
  if (descriptor < 0) return FileError(errno, "can't open", path);
  File file{Descriptor(descriptor), path};
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return FileError(errno, "can't examine", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected a regular file, found ",
        S_ISDIR(info.st_mode) ? "a directory" : "something else (a pipe, device or socket)"));
  }
  file.bytes_at_open_ = static_cast<uint64_t>(info.st_size);
  return file;
}

absl::StatusOr<File> File::OpenForReading(const std::string& path) {
  // Non-blocking, so that a named pipe is refused instead of blocking the open.
  return Examined(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
}

absl::StatusOr<File> File::OpenOrCreate(const std::string& path) {
  return Examined(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600), path);
}

absl::StatusOr<File> File::CreateNew(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return FileError(errno, "can't create", path);
  return File(Descriptor(descriptor), path);
}

absl::StatusOr<File> File::CreateNameless(const std::string& directory) {
  const std::string shown = absl::StrCat("a temporary file in ", directory);
  int descriptor = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return File(Descriptor(descriptor), shown);
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    return FileError(errno, "can't create", shown);
  // For file systems without O_TMPFILE: creates a name and removes it at once.
  std::string pattern = absl::StrCat(directory, "/.import-XXXXXX");
  descriptor = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "can't create", shown);
  File file{Descriptor(descriptor), shown};
  if (::unlink(pattern.c_str()) != 0) return FileError(errno, "can't unlink", pattern);
  return file;
}

absl::StatusOr<File> File::Duplicate() const {
  const int descriptor = ::fcntl(descriptor_.number(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return FileError(errno, "can't duplicate", path_);
  File file{Descriptor(descriptor), path_};
  file.bytes_at_open_ = bytes_at_open_;
  return file;
}

absl::Status File::ReadAt(uint64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const size_t wanted = std::min(into.size() - done, kTransferBytesMax);
    const ssize_t got = ::pread(descriptor_.number(), into.data() + done, wanted,
                                static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": expected ", into.size(),
                                              " bytes at offset ", offset, ", found ", done,
                                              ": the file was truncated after it was opened"));
    } else if (errno != EINTR) {
      return absl::DataLossError(
          FileError(errno, absl::StrCat("can't read at offset ", offset + done, " of"), path_)
              .message());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> File::ReadAll() const {
  std::string bytes(bytes_at_open_, '\0');
  HPS_RETURN_IF_ERROR(ReadAt(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

absl::Status File::WriteAt(uint64_t offset, std::span<const std::byte> from) const {
  size_t done = 0;
  while (done < from.size()) {
    const size_t wanted = std::min(from.size() - done, kTransferBytesMax);
    const ssize_t put = ::pwrite(descriptor_.number(), from.data() + done, wanted,
                                 static_cast<off_t>(offset + done));
    if (put >= 0) {
      done += static_cast<size_t>(put);
    } else if (errno != EINTR) {
      return FileError(errno, absl::StrCat("can't write at offset ", offset + done, " of"), path_);
    }
  }
  return absl::OkStatus();
}

absl::Status File::Truncate(uint64_t bytes) const {
  const bool cut = ::ftruncate(descriptor_.number(), static_cast<off_t>(bytes)) == 0;
  return cut ? absl::OkStatus() : FileError(errno, "can't shorten", path_);
}

absl::Status File::Sync() const {
  const bool synced = ::fdatasync(descriptor_.number()) == 0;
  return synced ? absl::OkStatus() : FileError(errno, "can't sync", path_);
}

absl::Status SyncDirectory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool synced = directory.number() >= 0 && ::fsync(directory.number()) == 0;
  return synced ? absl::OkStatus() : FileError(errno, "can't sync", path);
}

}  // namespace hps
