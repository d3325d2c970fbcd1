// Rewrites damaged tables, with marks for lost rows, and removes damaged networks.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "l3_rocksdb/options.h"

namespace hps {

// See VerifyRocksStore. Returns the number of keys newly marked lost. All tables switch together.
// `models`: those whose networks are damaged.
// REQUIRES: the WAL and the MANIFEST have no damage. (RocksDB with paranoid_checks off tolerates
// damaged table files, but also damaged logs, and continues after a hole in them.)
absl::StatusOr<uint64_t> RepairTables(const RocksStoreOptions& options,
                                      const std::set<std::string>& names,
                                      const std::set<std::string>& models,
                                      const ProgressFunction& progress);

}  // namespace hps
