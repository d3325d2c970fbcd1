// Checks every record of a log in RocksDB's format (MANIFEST and write-ahead log) by its CRC,
// without RocksDB: its own reader takes damage at the end of a file for the end of the log.
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

// The first damage, or nullopt when there is none. `may_be_torn`: a log whose last record is cut by
// the end of the file, or was set aside and is still zero, is whole; that is what a process that
// was killed, or a machine that lost its power, leaves behind. A record that only seems to be cut,
// as its length is damaged, is told from it by its CRC. Errors: as the file system's.
absl::StatusOr<std::optional<LogDamage>> CheckLog(rocksdb::Env* env, const std::string& path,
                                                  bool may_be_torn);

// The same for a log in memory.
std::optional<LogDamage> CheckLogBytes(std::string_view log, bool may_be_torn);

// CRC-32C of `bytes`.
uint32_t Crc32c(std::string_view bytes);

}  // namespace hps
