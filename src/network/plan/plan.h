// The plan of a dense network: the steps that a device runs, in order, for a batch of any size.
//
// Every value that depends on the batch has it in its first dimension, and samples do not depend on
// each other. So all sizes are of one sample, and one plan holds for every batch: value [2 x batch,
// 8] has 2 rows of each sample. Elements are float32; integers and booleans are converted on entry.
//
// Plain data, without CUDA. MakeDensePlan (plan_maker.h) makes it, src/network/gpu runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "network/onnx/graph.h"
#include "network/plan/operation.h"

namespace hps {

inline constexpr size_t kPlanDimsMax = 6;    // of an elementwise step, after dimensions are merged
inline constexpr size_t kPlanInputsMax = 8;  // of an elementwise entry
inline constexpr size_t kPlanInstructionsMax = 24;

enum class PlanMemory : uint8_t { kInput, kBuffer, kWeights };

// Elements of an input, of a buffer or of the weights.
struct PlanView {
  PlanMemory memory = PlanMemory::kWeights;
  uint32_t index = 0;  // of the input or buffer
  int64_t offset = 0;  // elements; of the weights' begin, else of the first sample's
  bool is_batched = false;
  // Of one sample if it is batched: the true first dimension is dims[0] x batch.
  std::vector<int64_t> dims{};
  std::vector<int64_t> strides{};  // in elements; 0 repeats
  // Where >= 0: coordinate c of this dimension stands for indices[gather_begin + c] of the plan.
  int gather_dim = -1;
  int64_t gather_begin = 0;

  int64_t ElementCount() const;  // of one sample if it is batched
  // Whether elements lie in order without gaps.
  bool IsCompact() const;

  friend bool operator==(const PlanView&, const PlanView&) = default;
};

// An operand: below kPlanInputsMax, an input; then results of instructions; or the immediate.
inline constexpr uint8_t kPlanImmediate = 255;

struct PlanInstruction {
  PlanOperation operation = PlanOperation::kCopy;
  uint8_t operands[3] = {};
  float immediate = 0;

  friend bool operator==(const PlanInstruction&, const PlanInstruction&) = default;
};

// output = program(inputs), element by element; all views have the same dims. The last instruction
// makes the result; without instructions it is inputs[0].
struct ElementwiseEntry {
  std::vector<PlanView> inputs;
  std::vector<PlanInstruction> program;
  PlanView output;
};

// Entries that do not depend on each other, in one launch.
struct ElementwiseStep {
  std::vector<ElementwiseEntry> entries;
};

// Products of at most this many columns are not worth cuBLASLt.
inline constexpr int64_t kPlanNarrowMax = 4;
inline constexpr size_t kPlanNarrowInstructionsMax = 8;

// out [rows, n] = a [rows, k] x transposed weights [n, k], + bias [n], then ReLU, then the program
// (input 0 is the result so far).
struct GemmStep {
  PlanView a;
  PlanView out;
  int64_t k = 0;  // at least a's width: with the zeros behind its rows
  int64_t n = 0;
  int64_t weights = 0;  // offset in the plan's weights, [n, k] row-major
  int64_t bias = -1;    // likewise; -1: none
  bool has_relu = false;
  std::vector<PlanInstruction> program{};  // of a narrow product only
};

// out [g, m, n] = a [g, m, k] x b [g, k, n]; either view may be transposed by its strides.
struct BatchedGemmStep {
  PlanView a;
  PlanView b;
  PlanView out;
};

// Dot products of all pairs of `rows` features of width `width`: out [1, selected], element e is
// that of features selected[e] / rows and selected[e] % rows. `parts` [features, width] follow one
// another.
struct PairsStep {
  std::vector<PlanView> parts;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t selected_begin = 0;  // in the plan's indices
  int64_t selected_count = 0;
  PlanView out;
};

enum class PlanReduction : uint8_t { kSum, kMean, kMax, kMin, kProduct, kSumSquare, kL1, kL2 };

// out = in reduced over its last dimension; in has one more dimension than out.
struct ReduceStep {
  PlanReduction reduction = PlanReduction::kSum;
  PlanView in;
  PlanView out;
};

enum class PlanNormalization : uint8_t { kSoftmax, kLogSoftmax, kLayer };

// Over the last dimension.
struct NormalizeStep {
  PlanNormalization kind = PlanNormalization::kSoftmax;
  PlanView in;
  PlanView out;
  int64_t scale = -1;  // offset in the weights, [width]; kLayer only; -1: none
  int64_t bias = -1;
  float epsilon = 0;
};

using PlanStep =
    std::variant<ElementwiseStep, GemmStep, BatchedGemmStep, PairsStep, ReduceStep, NormalizeStep>;

struct PlanBuffer {
  int64_t sample_elements = 0;
  int64_t row_elements = 0;  // of a row without the gap behind it
  // Its rows end in zeros that no step writes: it shares its memory with no other buffer, nor with
  // batches of other sizes.
  bool is_zero_padded = false;
  int64_t offset = 0;  // elements per sample, in the padded memory or in the arena
};

struct DensePlan {
  std::vector<OnnxValue> inputs;  // as the network lists them; the first dimension is -1
  std::vector<OnnxValue> outputs;
  std::vector<PlanView> output_views;  // compact
  std::vector<PlanStep> steps;
  std::vector<PlanBuffer> buffers;
  std::vector<float> weights;
  std::vector<int32_t> indices;
  // Elements of all buffers per sample. In the arena, a buffer of a batch begins at its offset x
  // batch; in the padded memory, at its offset x the largest batch.
  int64_t arena_elements = 0;
  int64_t padded_elements = 0;
};

}  // namespace hps
