// A file that gets its name when everything is in it.
//
// Until then it lies beside that place under a name of its own, PATH.<random>.partial, which nobody
// else has: neither another process that writes to the same place nor a file of the user's. It is
// removed when the object dies before it is published; only a process that is killed leaves it.
//
// For one thread; moves, never copies.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "import/formats/file.h"

namespace hps {

class PendingFile {
 public:
  // Errors: NOT_FOUND (its directory), PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  static absl::StatusOr<PendingFile> Create(const std::string& path);

  // To be given the name by Replace: of the file that symbolic links lead to from `path`, with the
  // mode of the one that is there and, where the system allows it, its owner. Others are refused
  // the new bytes as they were the old ones from the first on.
  // Errors: those of Create; INVALID_ARGUMENT (the links lead round).
  static absl::StatusOr<PendingFile> CreateToReplace(const std::string& path);

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  const std::string& path() const { return path_; }  // which it will have
  const File& file() const { return file_; }

  // Gives the file its name, which must be free, in one step. The caller has synced the file.
  // Errors: ALREADY_EXISTS (what is there stays as it is), those of Create.
  absl::Status Publish();

  // Gives the file its name in place of one that has it. The caller has synced the file.
  // Errors: those of Create.
  absl::Status Replace();

 private:
  PendingFile(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  File file_;
  std::string path_;
  bool pending_ = true;  // false when published or moved from
};

// Where symbolic links lead from `path`, which need not exist. Errors: INVALID_ARGUMENT (round).
absl::StatusOr<std::string> FollowLinks(const std::string& path);

}  // namespace hps
