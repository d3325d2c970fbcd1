// Page files (src/l3_pages) beside the disk's own random reads and beside the rows of a store,
// which are in RocksDB. Part of `hps bench l3`.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "bench/scenario.h"

namespace hps::bench {

absl::StatusOr<std::vector<Result>> MeasurePageFiles(const Options& options);

}  // namespace hps::bench
