// Lookups in a store beside a merge of changes into a new page file. Part of `hps bench l3`.
#pragma once

#include "absl/status/statusor.h"
#include "bench/scenario.h"

namespace hps::bench {

absl::StatusOr<Result> MeasureMerge(const Options& options);

}  // namespace hps::bench
