// Refuses what would fill the disk: a full disk must never be met in the middle of a change.
//
// Thread-safe. Costs one statvfs per question.
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
  // `env` must outlive the guard. `directory` may not exist yet when its parent does.
  SpaceGuard(rocksdb::Env* env, std::string directory, uint64_t free_bytes_min);

  // Whether `bytes` more leave free_bytes_min free.
  // Errors: RESOURCE_EXHAUSTED, which names free and needed bytes. A file system that can't tell
  // its free space is taken to have enough.
  absl::Status CheckRoomFor(uint64_t bytes) const;

  // nullopt when the file system can't tell.
  std::optional<uint64_t> FreeBytes() const;

 private:
  rocksdb::Env* const env_;
  const std::string directory_;
  const uint64_t free_bytes_min_;
};

}  // namespace hps
