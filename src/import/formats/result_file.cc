#include "import/formats/result_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/bytes.h"
#include "base/file.h"
#include "base/macros.h"
#include "import/formats/pending_file.h"

namespace hps {
namespace {

absl::Status Failed(const std::string& path) { return FileError(errno, "can't write", path); }

bool IsSpecial(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

absl::Status WriteSpecial(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return Failed(path);
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  return written && closed ? absl::OkStatus() : Failed(path);
}

}  // namespace

absl::Status CheckResultFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return FileError(EISDIR, "can't write", path);
  if (IsSpecial(path)) return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : Failed(path);
  HPS_ASSIGN_OR_RETURN(const std::string target, FollowLinks(path));
  // Whoever protects a file from being written means its bytes, whichever way they would go.
  if (access(target.c_str(), W_OK) != 0 && errno != ENOENT) return Failed(path);
  const std::string directory = std::filesystem::path(target).parent_path().string();
  if (access(directory.empty() ? "." : directory.c_str(), W_OK | X_OK) != 0) return Failed(path);
  return absl::OkStatus();
}

absl::Status WriteResultFile(const std::string& path, std::string_view text) {
  if (IsSpecial(path)) return WriteSpecial(path, text);
  HPS_ASSIGN_OR_RETURN(PendingFile file, PendingFile::CreateToReplace(path));
  HPS_RETURN_IF_ERROR(file.file().WriteAt(0, AsBytes(text)));
  HPS_RETURN_IF_ERROR(file.file().Sync());
  return file.Replace();
}

}  // namespace hps
