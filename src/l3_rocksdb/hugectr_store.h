// Reads HugeCTR HPS's persistent database. It is a RocksDB directory with one column family per
// table, "hps_et.<model>.<table>". A RocksDB key is the key in little-endian, 4 or 8 bytes. A value
// is a row of float32.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tier/foreign_store.h"

namespace hps {

// Opens the directory read-only. Writes no file in it, not even a log, and does not disturb a
// program that has it open. Errors: NOT_FOUND, INVALID_ARGUMENT (not a RocksDB directory),
// DATA_LOSS, UNAVAILABLE.
absl::StatusOr<std::unique_ptr<ForeignStore>> OpenHugectrStore(const std::string& path);

}  // namespace hps
