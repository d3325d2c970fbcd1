// The checksum of a whole table file. The MANIFEST and staged imports store it.
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace hps {

struct FileChecksum {
  std::string checksum;
  uint64_t bytes = 0;
};

// Reads the whole file. RocksDB's own function reports "corruption" if a read fails. Errors:
// DATA_LOSS (the file is missing), those of a failed read.
absl::StatusOr<FileChecksum> ChecksumOf(rocksdb::Env* env, const std::string& path);

}  // namespace hps
