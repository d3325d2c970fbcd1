// Dot products of all pairs on tensor cores; for LaunchPairs.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "dense_gpu/kernels/steps.h"

namespace hps {

// At most 32 features, aligned, of a width that is a multiple of 16 up to 256; not float32.
bool FitsTensorCores(const StepPairs& pairs);

// REQUIRES: FitsTensorCores. Does not write outputs of padding samples. Errors: INTERNAL.
absl::Status LaunchPairsOnTensorCores(const StepPairs& pairs, const RunArguments* arguments,
                                      cudaStream_t stream);

}  // namespace hps
