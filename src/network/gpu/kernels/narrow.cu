// Matrix products of at most four columns: the last layer of most networks.
//
// Bound: memory. Reads the rows once; the weights stay in the cache. A warp sums a row.
#include "gpu/cuda_status.h"
#include "network/gpu/kernels/elements.cuh"
#include "network/gpu/kernels/steps.h"
#include "network/plan/evaluate.h"

namespace hps {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kLanes = 32;
constexpr uint32_t kColumnsMax = kPlanNarrowMax;

template <bool kIsAligned>
__device__ void AddProducts(const StepNarrow& narrow, int64_t row_begin, uint32_t lane,
                            float* sums) {
  constexpr uint32_t kVector = kIsAligned ? 4 : 1;
  for (uint32_t k = lane * kVector; k < narrow.k; k += kLanes * kVector) {
    alignas(16) float x[kVector];
    if constexpr (kIsAligned) {
      *reinterpret_cast<float4*>(x) = LoadFloats(narrow.a.data, narrow.a.element, row_begin + k);
    } else {
      x[0] = LoadFloat(narrow.a.data, narrow.a.element, row_begin + k);
    }
#pragma unroll
    for (uint32_t column = 0; column < kColumnsMax; ++column) {
      if (column >= narrow.columns) break;
      const float* const weights = narrow.weights + column * narrow.k + k;
#pragma unroll
      for (uint32_t i = 0; i < kVector; ++i) sums[column] += x[i] * weights[i];
    }
  }
}

__device__ float RunProgram(const StepNarrow& narrow, float input) {
  float values[kPlanNarrowInstructionsMax];
  float result = input;
  for (uint32_t i = 0; i < narrow.instruction_count; ++i) {
    const PlanInstruction& instruction = narrow.program[i];
    float operands[3];
    for (uint32_t o = 0; o < 3; ++o) {
      const uint8_t operand = instruction.operands[o];
      operands[o] = operand == kPlanImmediate  ? instruction.immediate
                    : operand < kPlanInputsMax ? input
                                               : values[operand - kPlanInputsMax];
    }
    result = Evaluate(instruction.operation, operands[0], operands[1], operands[2]);
    values[i] = result;
  }
  return result;
}

template <bool kIsAligned>
__global__ void __launch_bounds__(kThreads) NarrowKernel(StepNarrow narrow) {
  const uint32_t row = (blockIdx.x * kThreads + threadIdx.x) / kLanes;
  if (row >= narrow.rows) return;
  const uint32_t lane = threadIdx.x % kLanes;
  float sums[kColumnsMax] = {};
  AddProducts<kIsAligned>(narrow, row * narrow.a_stride, lane, sums);
#pragma unroll
  for (uint32_t column = 0; column < kColumnsMax; ++column) {
    if (column >= narrow.columns) break;
    float sum = sums[column];
    for (uint32_t lanes = kLanes / 2; lanes > 0; lanes /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, lanes);
    if (lane != 0) continue;
    if (narrow.bias != nullptr) sum += narrow.bias[column];
    if (narrow.has_relu && sum < 0) sum = 0;
    StoreFloat(narrow.output.data, narrow.output.element, row * narrow.output_stride + column,
               RunProgram(narrow, sum));
  }
}

}  // namespace

absl::Status LaunchNarrow(const StepNarrow& narrow, cudaStream_t stream) {
  const auto blocks =
      static_cast<uint32_t>((uint64_t{narrow.rows} * kLanes + kThreads - 1) / kThreads);
  if (narrow.is_aligned) {
    NarrowKernel<true><<<blocks, kThreads, 0, stream>>>(narrow);
  } else {
    NarrowKernel<false><<<blocks, kThreads, 0, stream>>>(narrow);
  }
  return CudaStatus(cudaGetLastError(), "launch of a narrow matrix product");
}

}  // namespace hps
