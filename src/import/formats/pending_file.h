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

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  const std::string& path() const { return path_; }
  const File& file() const { return file_; }

  // Gives the file its name, which must be free, in one step. The caller has synced the file.
  // Errors: ALREADY_EXISTS (what is there stays as it is), those of Create.
  absl::Status Publish();

  // Gives the file its name in place of one that has it. Errors: those of Create.
  absl::Status Replace();

 private:
  PendingFile(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  File file_;
  std::string path_;
  bool pending_ = true;  // false when published or moved from
};

}  // namespace hps
