// Dot products of all pairs on tensor cores; for LaunchPairs.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "network/gpu/kernels/steps.h"

namespace hps {

// At most 32 features, aligned, of a width of 16 to 256 that is a power of two; at most 1,024
// products of them; in float16 or bfloat16.
bool FitsTensorCores(const StepPairs& pairs);

// REQUIRES: FitsTensorCores. Does not write outputs of padding samples. Errors: INTERNAL.
absl::Status LaunchPairsOnTensorCores(const StepPairs& pairs, const RunArguments* arguments,
                                      cudaStream_t stream);

}  // namespace hps
