// Predictions per second of a GPU by the number of instances that share it: lookup and network on
// the device, as one lookup slot of the server does it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "bench/scenario.h"

namespace hps::bench {

// On the GPU that the options name. A figure stands beside that of the same instances when the rows
// go through the host's memory to the network. Errors: UNIMPLEMENTED, UNAVAILABLE: a sentence where
// the build has no GPUs or no engine, or there is no such GPU.
absl::StatusOr<std::vector<Result>> RunCtrOnDevice(const Options& options);

}  // namespace hps::bench
