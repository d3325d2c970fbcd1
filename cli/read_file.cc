#include "cli/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace hps::cli {
namespace {

constexpr size_t kStepBytes = size_t{64} << 10;

// Appends what there is, up to one byte more than `bytes_max`. Returns 0, or what went wrong.
int ReadAll(int file, size_t bytes_max, std::string& text) {
  for (;;) {
    const size_t size = text.size();
    const size_t step = std::min(kStepBytes, bytes_max + 1 - size);
    text.resize(size + step);
    const ssize_t got = read(file, text.data() + size, step);
    text.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0 || text.size() > bytes_max) return 0;
  }
}

}  // namespace

absl::Status FileError(const std::string& path, int error_number, const char* action) {
  const std::string message =
      absl::StrCat("'", path, "' can't be ", action, ": ", std::strerror(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EISDIR:
      return absl::InvalidArgumentError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError(path, errno, "read");
  std::string text;
  const int error_number = ReadAll(file, bytes_max, text);
  close(file);
  if (error_number != 0) return FileError(path, error_number, "read");
  if (text.size() <= bytes_max) return text;
  return absl::ResourceExhaustedError(
      absl::StrCat("'", path, "' holds more than ", bytes_max, " bytes"));
}

}  // namespace hps::cli
