// Rows of bags into inputs of a network: sums, means, or the rows themselves.
//
// Bound: memory. Each row is read once and each value written once. A thread adds up one to four
// elements of a bag, in the order of its rows, as the CPU does.
#include <algorithm>

#include "gpu/cuda_status.h"
#include "network/gpu/kernels/steps.h"

namespace hps {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kBlocksMax = 2048;  // of one input; more elements take turns

__device__ void Add(float& to, float value) { to += value; }
__device__ void Add(float4& to, const float4& value) {
  to.x += value.x;
  to.y += value.y;
  to.z += value.z;
  to.w += value.w;
}
__device__ void Scale(float& to, float by) { to *= by; }
__device__ void Scale(float4& to, float by) {
  to.x *= by;
  to.y *= by;
  to.z *= by;
  to.w *= by;
}

struct BagRange {
  uint64_t begin;
  uint64_t end;
};

// Of a value: for pooling "none" one row of the sample.
__device__ BagRange RangeOf(const StepBags& step, uint32_t value, uint32_t sample_values) {
  const uint32_t sample = value / sample_values;
  BagRange range;
  if (step.bags != nullptr) {
    range = {step.bags[sample].begin, step.bags[sample].end};
  } else {
    range.begin = uint64_t{sample} * step.sample_rows;
    range.end = range.begin + step.sample_rows;
  }
  if (step.pooling != RowPooling::kNone) return range;
  range.begin += value - sample * sample_values;
  return {range.begin, range.begin + 1};
}

template <typename Vector>
__device__ void PoolBags(const StepBags& step) {
  const uint32_t width = step.dim / (sizeof(Vector) / sizeof(float));
  const uint32_t sample_values = step.pooling == RowPooling::kNone ? step.sample_rows : 1;
  const uint32_t count = step.samples * sample_values * width;
  const auto* const rows = reinterpret_cast<const Vector*>(step.rows);
  auto* const output = reinterpret_cast<Vector*>(step.output);
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    const uint32_t value = i / width;
    const uint32_t column = i - value * width;
    const BagRange range = RangeOf(step, value, sample_values);
    Vector sum = {};
    if (range.begin < range.end) sum = rows[range.begin * width + column];
    for (uint64_t row = range.begin + 1; row < range.end; ++row)
      Add(sum, rows[row * width + column]);
    if (step.pooling == RowPooling::kMean && range.end > range.begin + 1)
      Scale(sum, 1.0F / static_cast<float>(range.end - range.begin));
    output[i] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) BagsKernel(const StepBags* steps) {
  const StepBags& step = steps[blockIdx.y];
  if (step.has_vectors) {
    PoolBags<float4>(step);
  } else {
    PoolBags<float>(step);
  }
}

}  // namespace

// Some attributes are known only of loaded kernels.
absl::Status LoadBags() {
  cudaFuncAttributes attributes = {};
  return CudaStatus(cudaFuncGetAttributes(&attributes, BagsKernel),
                    "loading of the pooling of rows");
}

absl::Status LaunchBags(const StepBags* steps, uint32_t step_count, uint64_t elements_max,
                        cudaStream_t stream) {
  const uint64_t blocks = (elements_max + kThreads - 1) / kThreads;
  const dim3 grid(static_cast<uint32_t>(std::clamp<uint64_t>(blocks, 1, kBlocksMax)), step_count);
  BagsKernel<<<grid, kThreads, 0, stream>>>(steps);
  return CudaStatus(cudaGetLastError(), "launch of the pooling of rows");
}

}  // namespace hps
