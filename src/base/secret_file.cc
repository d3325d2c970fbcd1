#include "base/secret_file.h"

#include <sys/stat.h>

#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
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

}  // namespace hps
