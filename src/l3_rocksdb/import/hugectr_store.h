// HugeCTR HPS' persistent database: a RocksDB directory with a column family for each table,
// "hps_et.<model>.<table>"; RocksDB keys are the keys' little-endian bytes, 4 or 8 of them, and
// values are rows of float32.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tier/foreign_store.h"

namespace hps {

// Opens the directory read-only: no file in it is written, also no log. A program that has it open
// is not disturbed.
// Errors: NOT_FOUND, INVALID_ARGUMENT (no RocksDB directory), DATA_LOSS, UNAVAILABLE.
absl::StatusOr<std::unique_ptr<ForeignStore>> OpenHugectrStore(const std::string& path);

}  // namespace hps
