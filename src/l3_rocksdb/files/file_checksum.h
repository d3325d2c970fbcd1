// The checksum of a whole table file: the one that the MANIFEST and staged imports have of it.
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

// Reads the file from begin to end. RocksDB can do this, too, but says "corruption" when a read
// fails. Errors: DATA_LOSS (it is missing), those of a failed read.
absl::StatusOr<FileChecksum> ChecksumOf(rocksdb::Env* env, const std::string& path);

}  // namespace hps
