// Elementwise steps: a kernel reads a short program from memory and interprets it.
//
// Bound: memory. Reads each input and writes the output once; without a program, at the speed of a
// copy. The program is the same for all threads, so its branches cost no divergence.
#include <algorithm>

#include "gpu/cuda_status.h"
#include "network/gpu/kernels/elements.cuh"
#include "network/gpu/kernels/steps.h"
#include "network/plan/evaluate.h"

namespace hps {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kVectorsPerThread = 4;
constexpr uint32_t kBlocksMax = 8192;

__global__ void SetArgumentsKernel(RunArguments arguments, uint32_t input_count, RunArguments* to) {
  if (threadIdx.x == 0) to->batch = arguments.batch;
  for (uint32_t i = threadIdx.x; i < input_count; i += blockDim.x)
    to->inputs[i] = arguments.inputs[i];
}

// kVector elements of a view, beginning at `coordinates`.
template <int kVector>
__device__ void Load(const StepEntry& entry, const StepView& view, const uint32_t* coordinates,
                     const RunArguments* arguments, float* to) {
  int64_t at = view.offset;
  for (uint32_t d = 0; d < entry.rank; ++d) {
    const int64_t c =
        static_cast<int32_t>(d) == view.gather_dim ? view.gather[coordinates[d]] : coordinates[d];
    at += c * view.strides[d];
  }
  const std::byte* data = view.data;
  if (view.input >= 0) {
    data = arguments->inputs[view.input];
    if (coordinates[0] >= arguments->batch * entry.sample_rows) {
      for (int i = 0; i < kVector; ++i) to[i] = 0;
      return;
    }
  }
  if (kVector == 1) {
    to[0] = LoadElement(data, view.element, at);
  } else if (view.strides[entry.rank - 1] == 0) {
    const float value = LoadFloat(data, view.element, at);
    for (int i = 0; i < kVector; ++i) to[i] = value;
  } else {
    *reinterpret_cast<float4*>(to) = LoadFloats(data, view.element, at);
  }
}

template <int kVector>
__device__ void Interpret(const StepEntry& entry, float (*values)[kVector], float* result) {
  for (uint32_t i = 0; i < entry.instruction_count; ++i) {
    const PlanInstruction instruction = entry.program[i];
    const uint8_t a = instruction.operands[0];
    const uint8_t b = instruction.operands[1];
    const uint8_t c = instruction.operands[2];
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) {
      result[lane] = Evaluate(instruction.operation,
                              a == kPlanImmediate ? instruction.immediate : values[a][lane],
                              b == kPlanImmediate ? instruction.immediate : values[b][lane],
                              c == kPlanImmediate ? instruction.immediate : values[c][lane]);
      values[kPlanInputsMax + i][lane] = result[lane];
    }
  }
}

template <int kVector, bool kHasProgram>
__device__ void RunEntry(const StepEntry& entry, const RunArguments* arguments) {
  const uint32_t last = entry.rank - 1;
  const uint32_t row_vectors = entry.dims[last] / kVector;
  for (uint32_t v = blockIdx.x * blockDim.x + threadIdx.x; v < entry.vector_count;
       v += gridDim.x * blockDim.x) {
    uint32_t coordinates[kPlanDimsMax];
    uint32_t rest = v / row_vectors;
    coordinates[last] = (v - rest * row_vectors) * kVector;
    for (uint32_t d = last; d-- > 0;) {
      const uint32_t next = rest / entry.dims[d];
      coordinates[d] = rest - next * entry.dims[d];
      rest = next;
    }
    alignas(16) float result[kVector];
    if constexpr (kHasProgram) {
      alignas(16) float values[kPlanInputsMax + kPlanInstructionsMax][kVector];
      for (uint32_t i = 0; i < entry.input_count; ++i)
        Load<kVector>(entry, entry.inputs[i], coordinates, arguments, values[i]);
      for (int lane = 0; lane < kVector; ++lane) result[lane] = values[0][lane];
      Interpret<kVector>(entry, values, result);
    } else {
      Load<kVector>(entry, entry.inputs[0], coordinates, arguments, result);
    }
    int64_t to = 0;
    for (uint32_t d = 0; d < entry.rank; ++d) to += coordinates[d] * entry.output_strides[d];
    if constexpr (kVector == 4) {
      StoreFloats(entry.output.data, entry.output.element, to,
                  *reinterpret_cast<const float4*>(result));
    } else {
      StoreFloat(entry.output.data, entry.output.element, to, result[0]);
    }
  }
}

template <bool kHasProgram>
__global__ void __launch_bounds__(kThreads)
    ElementwiseKernel(const StepEntry* entries, const RunArguments* arguments) {
  static_assert(sizeof(StepEntry) % sizeof(uint32_t) == 0);
  constexpr uint32_t kWords = sizeof(StepEntry) / sizeof(uint32_t);
  __shared__ alignas(16) uint32_t copy[kWords];
  const auto* const from = reinterpret_cast<const uint32_t*>(entries + blockIdx.y);
  for (uint32_t i = threadIdx.x; i < kWords; i += kThreads) copy[i] = from[i];
  __syncthreads();
  const StepEntry& entry = *reinterpret_cast<const StepEntry*>(copy);
  if (entry.vector == 4) {
    RunEntry<4, kHasProgram>(entry, arguments);
  } else {
    RunEntry<1, kHasProgram>(entry, arguments);
  }
}

}  // namespace

absl::Status LaunchSetArguments(const RunArguments& arguments, uint32_t input_count,
                                RunArguments* to, cudaStream_t stream) {
  SetArgumentsKernel<<<1, 128, 0, stream>>>(arguments, input_count, to);
  return CudaStatus(cudaGetLastError(), "launch of a run's arguments");
}

absl::Status LaunchElementwise(const ElementwiseLaunch& launch, const RunArguments* arguments,
                               cudaStream_t stream) {
  const uint32_t per_block = kThreads * kVectorsPerThread;
  const dim3 grid(std::clamp((launch.vectors_max + per_block - 1) / per_block, 1U, kBlocksMax),
                  launch.entry_count);
  if (launch.has_programs) {
    ElementwiseKernel<true><<<grid, kThreads, 0, stream>>>(launch.entries, arguments);
  } else {
    ElementwiseKernel<false><<<grid, kThreads, 0, stream>>>(launch.entries, arguments);
  }
  return CudaStatus(cudaGetLastError(), "launch of an elementwise step");
}

}  // namespace hps
