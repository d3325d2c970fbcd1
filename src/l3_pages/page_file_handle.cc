#include "l3_pages/page_file_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_pages/page_format.h"

namespace hps {
namespace {

// One call of the system transfers no more than about 2 GiB.
constexpr size_t kTransferBytesMax = size_t{1} << 30;

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

AlignedBytes AllocateAligned(size_t size) {
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(kPageBlockBytes, size)));
}

absl::Status PageFileError(int error_number, const std::string& what, const std::string& path) {
  return {CodeOf(error_number),
          absl::StrCat(what, " ", path, ": ", std::generic_category().message(error_number))};
}

absl::StatusOr<PageFileHandle> PageFileHandle::OpenForReading(const std::string& path,
                                                              bool direct) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (descriptor < 0) return PageFileError(errno, "can't open page file", path);
  return PageFileHandle(descriptor, path);
}

absl::StatusOr<PageFileHandle> PageFileHandle::CreateNew(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return PageFileError(errno, "can't create page file", path);
  return PageFileHandle(descriptor, path);
}

PageFileHandle::~PageFileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<uint64_t> PageFileHandle::Size() const {
  struct stat found {};
  if (::fstat(descriptor_, &found) != 0) return PageFileError(errno, "can't examine", path_);
  return static_cast<uint64_t>(found.st_size);
}

absl::Status PageFileHandle::ReadAt(uint64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        ::pread(descriptor_, into.data() + done, std::min(into.size() - done, kTransferBytesMax),
                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return PageFileError(errno, absl::StrCat("can't read at offset ", offset + done, " of"),
                           path_);
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": expected ", into.size(),
                                              " bytes at offset ", offset, ", found ", done));
    }
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status PageFileHandle::WriteAt(uint64_t offset, std::span<const std::byte> from) const {
  size_t done = 0;
  while (done < from.size()) {
    const ssize_t put =
        ::pwrite(descriptor_, from.data() + done, std::min(from.size() - done, kTransferBytesMax),
                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return PageFileError(errno, absl::StrCat("can't write at offset ", offset + done, " of"),
                           path_);
    }
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

void PageFileHandle::BeginSync(uint64_t offset, uint64_t size) const {
  static_cast<void>(::sync_file_range(descriptor_, static_cast<off_t>(offset),
                                      static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE));
}

absl::Status PageFileHandle::Sync() const {
  if (::fsync(descriptor_) != 0) return PageFileError(errno, "can't sync", path_);
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const std::string directory = parent.empty() ? "." : parent;
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return PageFileError(errno, "can't open directory", directory);
  const int error_number = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error_number != 0) return PageFileError(error_number, "can't sync directory", directory);
  return absl::OkStatus();
}

}  // namespace hps
