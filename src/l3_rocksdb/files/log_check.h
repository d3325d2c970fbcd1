// Checks the CRC of every record of a file in RocksDB's log format (MANIFEST and WAL), without
// RocksDB. RocksDB's own reader takes damage at the end of a file for the end of the log.
//
// Source of the format: RocksDB's wiki page "Write Ahead Log File Format".
#pragma once

#include <rocksdb/env.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hps {

struct LogDamage {
  uint64_t offset = 0;  // of the record, in the file
  std::string what;
};

// Returns the first damage, or nullopt if there is none. With `may_be_torn`, the end of the file
// may cut the last record, and the last record may be preallocated zeros. A killed process or a
// power cut leaves such a file. The CRC tells a cut record from one whose length is damaged.
// Errors: those of the file system.
absl::StatusOr<std::optional<LogDamage>> CheckLog(rocksdb::Env* env, const std::string& path,
                                                  bool may_be_torn);

// As CheckLog, for a log in memory.
std::optional<LogDamage> CheckLogBytes(std::string_view log, bool may_be_torn);

// CRC-32C of `bytes`.
uint32_t Crc32c(std::string_view bytes);

}  // namespace hps
