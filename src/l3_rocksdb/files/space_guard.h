// Refuses operations that would fill the disk, so that no change meets a full disk halfway.
//
// Thread-safe. A check costs one statvfs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace rocksdb {
class Env;
}

namespace hps {

class SpaceGuard {
 public:
  // `env` must outlive the guard. `directory` need not exist if its parent does.
  SpaceGuard(rocksdb::Env* env, std::string directory, uint64_t free_bytes_min);

  // Checks that free_bytes_min bytes stay free after `bytes` more are written. Errors:
  // RESOURCE_EXHAUSTED (IsDiskFull; names free and needed bytes and the setting). A file system
  // that does not report its free space passes the check.
  absl::Status CheckRoomFor(uint64_t bytes) const;

  // Returns nullopt if the file system does not report it.
  std::optional<uint64_t> FreeBytes() const;

 private:
  rocksdb::Env* const env_;
  const std::string directory_;
  const uint64_t free_bytes_min_;
};

}  // namespace hps
