#include "base/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/logging.h"

namespace hps {

absl::Status CheckSecretFile(const std::string& setting, const std::string& path,
                             std::optional<bool> allowed) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & S_IROTH) == 0)
    return absl::OkStatus();
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", info.st_mode & 07777);
  const std::string found = absl::StrCat(
      setting, ": the mode of '", path, "', ", mode.data(),
      ", lets every user read it; run `chmod o-r` on it, or mount it with the mode 0440");
  if (!allowed.has_value()) return absl::FailedPreconditionError(found);
  if (!*allowed) {
    return absl::FailedPreconditionError(
        absl::StrCat(found, ", or set [server.security] secrets_readable_by_all = true"));
  }
  LogWarning(found);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSecretLine(const std::string& path, const std::string& where,
                                           size_t bytes_max) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return absl::NotFoundError(absl::StrCat(where, " can't be read"));
  struct stat info {};
  if (fstat(file.number(), &info) != 0 || !S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(where, " is not a regular file"));
  std::string line(bytes_max + 2, '\0');  // a line's end may be two bytes
  ssize_t got = 0;
  do {
    got = read(file.number(), line.data(), line.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return absl::NotFoundError(absl::StrCat(where, " can't be read"));
  line.resize(static_cast<size_t>(got));
  line.resize(std::min(line.find('\n'), line.size()));
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

// A line break would add a line to the request's header.
absl::Status CheckToken(const std::string& token, const std::string& where) {
  if (!token.empty() && token.size() <= kTokenBytesMax &&
      token.find_first_of(" \t\r\n") == std::string::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ": the token is one line of 1 to ",
                                                 kTokenBytesMax, " bytes without blanks"));
}

}  // namespace hps
