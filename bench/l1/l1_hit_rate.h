// How near level 1 comes to an exact least-recently-used cache of as many rows.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "bench/scenario.h"

namespace hps::bench {

// One result for each power law. The figure is the hit rate in percent, the bound that of the exact
// one, both over the second half of the batches. Both are asked batch by batch: what a batch missed
// is inserted after it.
absl::StatusOr<std::vector<Result>> MeasureHitRates(const Options& options);

}  // namespace hps::bench
