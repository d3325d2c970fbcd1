// Kernels of a plan's steps that are no GEMMs, and what they read.
//
// All launches are asynchronous and may be captured into a graph. What they read lies in device
// memory, where it stays until the stream has passed them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "hps/dense_math.h"
#include "network/device_rows.h"
#include "network/plan/plan.h"

namespace hps {

inline constexpr uint32_t kStepInputsMax = 448;  // of a network: they are a kernel's argument

// What changes from run to run. Samples from `batch` on are padding: their inputs are read as 0.
struct RunArguments {
  uint32_t batch = 0;
  const std::byte* inputs[kStepInputsMax] = {};
};

// Elements of a buffer, in device memory: float32, or of 16 bits. Kernels compute in float32.
struct StepMemory {
  std::byte* data = nullptr;
  OnnxElement element = OnnxElement::kFloat32;
};

// A view of a plan at its place. Rows are of the first dimension, of all samples.
struct StepView {
  const std::byte* data = nullptr;  // of a buffer or weights; null: of the input
  int32_t input = -1;
  OnnxElement element = OnnxElement::kFloat32;
  int32_t gather_dim = -1;
  const int32_t* gather = nullptr;
  int64_t offset = 0;
  int64_t strides[kPlanDimsMax] = {};
};

struct StepEntry {
  StepView inputs[kPlanInputsMax];
  PlanInstruction program[kPlanInstructionsMax];
  StepMemory output;
  int64_t output_strides[kPlanDimsMax] = {};
  uint32_t dims[kPlanDimsMax] = {};  // of the whole batch
  uint32_t rank = 0;
  uint32_t sample_rows = 1;  // dims[0] of one sample
  uint32_t input_count = 0;
  uint32_t instruction_count = 0;
  uint32_t vector = 1;        // elements that a thread handles together: 4 or 1
  uint32_t vector_count = 0;  // of the whole entry
};

struct StepPairsRow {
  const std::byte* data = nullptr;
  OnnxElement element = OnnxElement::kFloat32;
  int32_t input = -1;
  int64_t offset = 0;
  int64_t sample_stride = 0;
};

struct StepPairs {
  const StepPairsRow* rows = nullptr;  // [row_count]
  uint32_t row_count = 0;
  uint32_t width = 0;
  const int32_t* selected = nullptr;
  uint32_t selected_count = 0;
  StepMemory output;
  int64_t output_stride = 0;
  uint32_t samples = 0;
  bool is_aligned = false;  // rows begin at, and have, multiples of four elements
  DenseMath math = DenseMath::kFloat32;
};

// Rows of `width` elements: each becomes one element, or a row.
struct StepRows {
  StepMemory input;
  StepMemory output;
  uint32_t dims[kPlanDimsMax] = {};  // without the last
  int64_t input_strides[kPlanDimsMax] = {};
  int64_t output_strides[kPlanDimsMax] = {};
  uint32_t rank = 0;
  uint32_t row_count = 0;
  uint32_t width = 0;
  int64_t input_stride = 1;  // of the last dimension
  int64_t output_stride = 1;
};

struct StepNormalization {
  PlanNormalization kind = PlanNormalization::kSoftmax;
  const float* scale = nullptr;
  const float* bias = nullptr;
  float epsilon = 0;
};

// A matrix product of few columns, with its bias, ReLU and program (as GemmStep).
struct StepNarrow {
  StepMemory a;
  int64_t a_stride = 0;
  const float* weights = nullptr;  // [columns, k]
  const float* bias = nullptr;
  StepMemory output;
  int64_t output_stride = 0;
  uint32_t rows = 0;
  uint32_t k = 0;
  uint32_t columns = 0;
  bool has_relu = false;
  bool is_aligned = false;  // rows of a and weights begin at, and have, multiples of four elements
  uint32_t instruction_count = 0;
  PlanInstruction program[kPlanNarrowInstructionsMax];
};

// Rows of samples that become one input of a network (as FedInput): sums, means, or the rows
// themselves. At most 2^31 elements.
struct StepBags {
  const float* rows = nullptr;
  const BagPlace* bags = nullptr;  // [samples]; null: sample_rows rows each
  float* output = nullptr;
  uint32_t dim = 0;
  uint32_t samples = 0;
  uint32_t sample_rows = 1;
  RowPooling pooling = RowPooling::kSum;
  bool has_vectors = false;  // rows and output begin at, and rows have, multiples of 16 bytes
};

// `steps` [step_count] in device memory; `elements_max`: the most that one of them writes, counted
// in vectors of four where it has them.
absl::Status LaunchBags(const StepBags* steps, uint32_t step_count, uint64_t elements_max,
                        cudaStream_t stream);

// Loads the kernel of LaunchBags, so that its first launch does not.
absl::Status LoadBags();

// Writes the arguments of the next run to `to`, in stream order.
absl::Status LaunchSetArguments(const RunArguments& arguments, uint32_t input_count,
                                RunArguments* to, cudaStream_t stream);

// `entries` [entry_count] in device memory; `vectors_max`: the largest of their vector counts.
struct ElementwiseLaunch {
  const StepEntry* entries = nullptr;
  uint32_t entry_count = 0;
  uint32_t vectors_max = 0;
  bool has_programs = false;
};
absl::Status LaunchElementwise(const ElementwiseLaunch& launch, const RunArguments* arguments,
                               cudaStream_t stream);
absl::Status LaunchPairs(const StepPairs& pairs, const RunArguments* arguments,
                         cudaStream_t stream);
absl::Status LaunchNarrow(const StepNarrow& narrow, cudaStream_t stream);
absl::Status LaunchReduce(PlanReduction reduction, const StepRows& rows, cudaStream_t stream);
absl::Status LaunchNormalize(const StepNormalization& how, const StepRows& rows,
                             cudaStream_t stream);

}  // namespace hps
