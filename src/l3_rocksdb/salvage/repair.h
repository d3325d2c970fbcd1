// Writes damaged tables anew, with marks in the places of what was lost.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "l3_rocksdb/options.h"

namespace hps {

// See VerifyRocksStore. Returns the number of keys newly marked lost. All tables switch together.
// REQUIRES: the logs of the store have no damage (RocksDB, when told to bear damaged table files,
// also bears damaged logs, and goes on after a hole in them).
absl::StatusOr<uint64_t> RepairTables(const RocksStoreOptions& options,
                                      const std::set<std::string>& names,
                                      const ProgressFunction& progress);

}  // namespace hps
