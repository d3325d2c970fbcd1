// Steps over the elements of rows: reductions, softmax, layer normalization.
//
// Bound: memory. A reduction reads its input once. A normalization reads a row two or three times
// and writes it once; all reads but the first are of rows that are still in the cache.
#include <cfloat>

#include "gpu/cuda_status.h"
#include "network/gpu/kernels/elements.cuh"
#include "network/gpu/kernels/steps.h"

namespace hps {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFFU;
constexpr uint32_t kShortRow = 32;  // one thread reduces it

// Where a row begins, in elements.
struct RowPlace {
  int64_t input;
  int64_t output;
};

__device__ RowPlace PlaceOf(const StepRows& rows, uint32_t row) {
  int64_t from = 0, to = 0;
  for (uint32_t d = rows.rank; d-- > 0;) {
    const uint32_t next = row / rows.dims[d];
    const uint32_t c = row - next * rows.dims[d];
    row = next;
    from += c * rows.input_strides[d];
    to += c * rows.output_strides[d];
  }
  return {from, to};
}

__device__ float LoadOf(const StepRows& rows, const RowPlace& place, uint32_t i) {
  return LoadFloat(rows.input.data, rows.input.element, place.input + i * rows.input_stride);
}

__device__ void Store(const StepRows& rows, int64_t at, float value) {
  StoreFloat(rows.output.data, rows.output.element, at, value);
}

__device__ float First(PlanReduction reduction) {
  switch (reduction) {
    case PlanReduction::kMax:
      return -INFINITY;
    case PlanReduction::kMin:
      return INFINITY;
    case PlanReduction::kProduct:
      return 1;
    default:
      return 0;
  }
}

__device__ float Prepared(PlanReduction reduction, float x) {
  switch (reduction) {
    case PlanReduction::kSumSquare:
    case PlanReduction::kL2:
      return x * x;
    case PlanReduction::kL1:
      return fabsf(x);
    default:
      return x;
  }
}

__device__ float Joined(PlanReduction reduction, float a, float b) {
  switch (reduction) {
    case PlanReduction::kMax:
      return b > a || isnan(b) ? b : a;
    case PlanReduction::kMin:
      return b < a || isnan(b) ? b : a;
    case PlanReduction::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

__device__ float Finished(PlanReduction reduction, float x, uint32_t width) {
  if (reduction == PlanReduction::kMean) return x / static_cast<float>(width);
  return reduction == PlanReduction::kL2 ? sqrtf(x) : x;
}

// `kRowLanes` threads of a warp for each row.
template <uint32_t kRowLanes>
__global__ void __launch_bounds__(kThreads) ReduceKernel(PlanReduction reduction, StepRows rows) {
  const uint32_t row = (blockIdx.x * kThreads + threadIdx.x) / kRowLanes;
  if (row >= rows.row_count) return;
  const RowPlace place = PlaceOf(rows, row);
  float value = First(reduction);
  for (uint32_t i = threadIdx.x % kRowLanes; i < rows.width; i += kRowLanes)
    value = Joined(reduction, value, Prepared(reduction, LoadOf(rows, place, i)));
  for (uint32_t lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
    value = Joined(reduction, value, __shfl_xor_sync(kAllLanes, value, lanes));
  if (threadIdx.x % kRowLanes == 0)
    Store(rows, place.output, Finished(reduction, value, rows.width));
}

__device__ float SumOfWarp(float value) {
  for (uint32_t lanes = kLanes / 2; lanes > 0; lanes /= 2)
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

__device__ float MaximumOfWarp(float value) {
  for (uint32_t lanes = kLanes / 2; lanes > 0; lanes /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
}

__global__ void __launch_bounds__(kThreads) NormalizeKernel(StepNormalization how, StepRows rows) {
  const uint32_t row = (blockIdx.x * kThreads + threadIdx.x) / kLanes;
  if (row >= rows.row_count) return;
  const RowPlace place = PlaceOf(rows, row);
  const uint32_t lane = threadIdx.x % kLanes;
  const auto at = [&](uint32_t i) { return LoadOf(rows, place, i); };
  if (how.kind == PlanNormalization::kLayer) {
    float sum = 0, squares = 0;
    for (uint32_t i = lane; i < rows.width; i += kLanes) sum += at(i);
    const float mean = SumOfWarp(sum) / static_cast<float>(rows.width);
    for (uint32_t i = lane; i < rows.width; i += kLanes) squares += (at(i) - mean) * (at(i) - mean);
    const float variance = SumOfWarp(squares) / static_cast<float>(rows.width);
    const float scale = 1.0F / sqrtf(variance + how.epsilon);
    for (uint32_t i = lane; i < rows.width; i += kLanes) {
      float value = (at(i) - mean) * scale;
      if (how.scale != nullptr) value *= how.scale[i];
      if (how.bias != nullptr) value += how.bias[i];
      Store(rows, place.output + i * rows.output_stride, value);
    }
    return;
  }
  float top = -INFINITY;
  for (uint32_t i = lane; i < rows.width; i += kLanes) top = fmaxf(top, at(i));
  top = MaximumOfWarp(top);
  float sum = 0;
  for (uint32_t i = lane; i < rows.width; i += kLanes) sum += expf(at(i) - top);
  sum = SumOfWarp(sum);
  const float log_sum = logf(sum);
  for (uint32_t i = lane; i < rows.width; i += kLanes) {
    const float x = at(i) - top;
    Store(rows, place.output + i * rows.output_stride,
          how.kind == PlanNormalization::kSoftmax ? expf(x) / sum : x - log_sum);
  }
}

uint32_t BlocksOf(uint64_t threads) {
  return static_cast<uint32_t>((threads + kThreads - 1) / kThreads);
}

}  // namespace

absl::Status LaunchReduce(PlanReduction reduction, const StepRows& rows, cudaStream_t stream) {
  if (rows.width < kShortRow || rows.input_stride != 1) {
    ReduceKernel<1><<<BlocksOf(rows.row_count), kThreads, 0, stream>>>(reduction, rows);
  } else {
    ReduceKernel<kLanes>
        <<<BlocksOf(uint64_t{rows.row_count} * kLanes), kThreads, 0, stream>>>(reduction, rows);
  }
  return CudaStatus(cudaGetLastError(), "launch of a reduction");
}

absl::Status LaunchNormalize(const StepNormalization& how, const StepRows& rows,
                             cudaStream_t stream) {
  NormalizeKernel<<<BlocksOf(uint64_t{rows.row_count} * kLanes), kThreads, 0, stream>>>(how, rows);
  return CudaStatus(cudaGetLastError(), "launch of a normalization");
}

}  // namespace hps
