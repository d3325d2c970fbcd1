// A file that gets its final name when it is complete.
//
// Until then it is in the same directory under a unique name, PATH.<random>.partial. No other
// process and no file of the user has this name. If the object is destroyed before the file is
// published, it removes the file. Only a killed process leaves it.
//
// For one thread. Movable, not copyable.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace hps {

class PendingFile {
 public:
  // Errors: NOT_FOUND (no such directory), PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  static absl::StatusOr<PendingFile> Create(const std::string& path);

  // Creates a file that Replace will put in place of `path`, or of the file that symbolic links at
  // `path` lead to. The file gets the mode of the existing file and, if the system allows it, its
  // owner. So access to the new bytes is restricted like that to the old ones from the start.
  // Errors: those of Create; INVALID_ARGUMENT (a cycle of links).
  static absl::StatusOr<PendingFile> CreateToReplace(const std::string& path);

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  const std::string& path() const { return path_; }  // the final name
  const File& file() const { return file_; }

  // Gives the file its final name in one step. The caller has synced the file. Errors:
  // ALREADY_EXISTS (the existing file stays unchanged), those of Create.
  absl::Status Publish();

  // Gives the file its final name; replaces an existing file. The caller has synced the file.
  // Errors: those of Create.
  absl::Status Replace();

 private:
  PendingFile(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  File file_;
  std::string path_;
  bool pending_ = true;  // false after publishing or moving
};

// Follows symbolic links from `path` to their target, which need not exist. Errors:
// INVALID_ARGUMENT (a cycle).
absl::StatusOr<std::string> FollowLinks(const std::string& path);

}  // namespace hps
