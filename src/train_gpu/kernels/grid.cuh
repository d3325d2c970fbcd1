// How large launches are, and which feature a position is of.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/step_view.h"

namespace hps {

inline constexpr uint32_t kThreads = 256;
// Blocks of kThreads that a multiprocessor runs at a time at least, where rows are moved.
inline constexpr uint32_t kBlocksOnSm = 4;
inline constexpr uint32_t kGridRowsMax = 65'535;
// Kernels whose work is found on the device have no more blocks than run at a time, or some times
// that. Those of the first kind have little to do as a rule.
inline constexpr uint32_t kFewBlocks = 1024;
inline constexpr uint32_t kManyBlocks = 8192;
inline constexpr uint32_t kBlocksMax = uint32_t{1} << 30;

inline uint32_t Blocks(uint64_t work, uint32_t per_block) {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>((work + per_block - 1) / per_block, 1, kBlocksMax));
}

inline LaunchShape FewBlocks(uint64_t work, cudaStream_t stream) {
  return {.blocks = std::min(Blocks(work, kThreads), kFewBlocks),
          .threads = kThreads,
          .stream = stream};
}

// The lanes of the calling lane's tile.
template <uint32_t kLanes>
__device__ inline uint32_t TileMask() {
  if constexpr (kLanes == kWarpLanes) {
    return kAllLanes;
  } else {
    return ((1u << kLanes) - 1) << (threadIdx.x % kWarpLanes / kLanes * kLanes);
  }
}

// REQUIRES: a position of the step.
__device__ inline uint32_t FeatureAt(const TrainStepView& step, uint32_t v) {
  uint32_t low = 0;
  uint32_t high = step.feature_count;  // starts[high] > v
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (step.starts[middle] <= v)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace hps
