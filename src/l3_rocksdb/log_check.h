// Checks every record of a log in RocksDB's format (MANIFEST and write-ahead log) by its CRC,
// without RocksDB: its own reader takes damage at the end of a file for the end of the log.
//
// Source of the format: RocksDB's wiki page "Write Ahead Log File Format".
#pragma once

#include <rocksdb/env.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace hps {

struct LogDamage {
  uint64_t offset = 0;  // of the record, in the file
  std::string what;
};

// The first damage, or nullopt when there is none. `may_be_torn`: a last record that is cut by the
// end of the file is no damage; it is what a power cut leaves behind. Errors: as the file system's.
absl::StatusOr<std::optional<LogDamage>> CheckLog(rocksdb::Env* env, const std::string& path,
                                                  bool may_be_torn);

// CRC-32C of `bytes`.
uint32_t Crc32c(std::string_view bytes);

}  // namespace hps
