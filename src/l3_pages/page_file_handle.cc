#include "l3_pages/page_file_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_pages/call_fault.h"
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
  int error_number = ReachCall("l3_pages.open.call").error_number;
  const int descriptor = error_number != 0 ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return PageFileError(error_number != 0 ? error_number : errno, "can't open page file", path);
  PageFileHandle file(descriptor, path);
  if (direct) file.drops_behind_ = !file.TurnDirect();
  return file;
}

// False if the file system has no direct I/O: it refuses the flag, or a read with it.
bool PageFileHandle::TurnDirect() const {
  const AlignedBytes bytes = AllocateAligned(kPageBlockBytes);
  bool refused = ReachCall("l3_pages.open.turn_direct").error_number != 0;
  refused = refused || ::fcntl(descriptor(), F_SETFL, O_DIRECT) != 0;
  if (!refused && bytes != nullptr)
    refused = ::pread(descriptor(), bytes.get(), kPageBlockBytes, 0) < 0 && errno == EINVAL;
  if (!refused) return true;
  static_cast<void>(::fcntl(descriptor(), F_SETFL, 0));
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    LogInfo(absl::StrCat(path_,
                         ": the file system has no direct I/O; the system is asked to drop "
                         "each page of a page file from its page cache after its reading"));
  }
  return false;
}

void PageFileHandle::DropBehind(uint64_t offset, size_t size) const {
  if (!drops_behind_) return;
  static_cast<void>(::posix_fadvise(descriptor(), static_cast<off_t>(offset),
                                    static_cast<off_t>(size), POSIX_FADV_DONTNEED));
}

// False if writes go through the page cache already.
bool PageFileHandle::TurnBuffered() const {
  const int flags = ::fcntl(descriptor(), F_GETFL);
  if (flags < 0 || (flags & O_DIRECT) == 0) return false;
  return ::fcntl(descriptor(), F_SETFL, flags & ~O_DIRECT) == 0;
}

absl::StatusOr<PageFileHandle> PageFileHandle::CreateNew(const std::string& path, bool direct) {
  const int error_number = ReachCall("l3_pages.create.call").error_number;
  if (error_number != 0) return PageFileError(error_number, "can't create page file", path);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return PageFileError(errno, "can't create page file", path);
  if (direct) static_cast<void>(::fcntl(descriptor, F_SETFL, O_DIRECT));  // refused: stays buffered
  return PageFileHandle(descriptor, path);
}

absl::StatusOr<uint64_t> PageFileHandle::Size() const {
  struct stat found {};
  if (::fstat(descriptor(), &found) != 0) return PageFileError(errno, "can't examine", path_);
  return static_cast<uint64_t>(found.st_size);
}

absl::Status PageFileHandle::ReadAt(uint64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const auto part = into.subspan(done, std::min(into.size() - done, kTransferBytesMax));
    const ssize_t read =
        ::pread(descriptor(), part.data(), part.size(), static_cast<off_t>(offset + done));
    const int got =
        AfterReadFault("l3_pages.read.call", read < 0 ? -errno : static_cast<int>(read), part);
    if (got == -EINTR) continue;
    if (got < 0) {
      return PageFileError(-got, absl::StrCat("can't read at offset ", offset + done, " of"),
                           path_);
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": expected ", into.size(),
                                              " bytes at offset ", offset, ", found ", done));
    }
    done += static_cast<size_t>(got);
  }
  DropBehind(offset, into.size());
  return absl::OkStatus();
}

absl::Status PageFileHandle::WriteAt(uint64_t offset, std::span<const std::byte> from) const {
  size_t done = 0;
  while (done < from.size()) {
    const CallFault fault = ReachCall("l3_pages.write.call");
    size_t size = std::min(from.size() - done, kTransferBytesMax);
    if (fault.is_short) size = (size + 1) / 2;
    errno = fault.error_number;
    const ssize_t put = fault.error_number != 0 ? -1
                                                : ::pwrite(descriptor(), from.data() + done, size,
                                                           static_cast<off_t>(offset + done));
    if (put < 0 && (errno == EINTR || (errno == EINVAL && TurnBuffered()))) continue;
    if (put < 0) {
      return PageFileError(errno, absl::StrCat("can't write at offset ", offset + done, " of"),
                           path_);
    }
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

void PageFileHandle::BeginSync(uint64_t offset, uint64_t size) const {
  static_cast<void>(::sync_file_range(descriptor(), static_cast<off_t>(offset),
                                      static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE));
}

absl::Status PageFileHandle::Sync() const {
  int error_number = ReachCall("l3_pages.sync.call").error_number;
  if (error_number == 0 && ::fsync(descriptor()) != 0) error_number = errno;
  if (error_number != 0) return PageFileError(error_number, "can't sync", path_);
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const std::string directory = parent.empty() ? "." : parent;
  const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() < 0) return PageFileError(errno, "can't open directory", directory);
  error_number = ReachCall("l3_pages.sync_directory.call").error_number;
  if (error_number == 0 && ::fsync(opened.number()) != 0) error_number = errno;
  if (error_number == 0) return absl::OkStatus();
  return PageFileError(error_number, "can't sync the directory of", path_);
}

}  // namespace hps
