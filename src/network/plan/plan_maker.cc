#include "network/plan/plan_maker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "network/plan/lower.h"
#include "network/plan/plan_passes.h"
#include "network/plan/plan_state.h"

namespace hps {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

bool IsFolded(PlanState& state, const OnnxNode& node) {
  if (node.op == "Shape" || node.op == "Constant") return true;
  bool has_input = false;
  for (const std::string_view input : node.inputs) {
    if (input.empty()) continue;
    has_input = true;
    if (state.Constant(input) == nullptr) return false;
  }
  return has_input;
}

// Inputs that ONNX lets a node leave out; others must be there.
bool MayLackInputs(std::string_view op) {
  static constexpr std::string_view kAll[] = {"Clip", "Slice", "Squeeze",
                                              "Gemm", "Split", "LayerNormalization"};
  return std::find(std::begin(kAll), std::end(kAll), op) != std::end(kAll) ||
         ReductionOf(op).has_value();
}

absl::Status CheckNode(const PlanState& state, const OnnxNode& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].empty() && (i == 0 || !MayLackInputs(node.op)))
      return absl::InvalidArgumentError(absl::StrCat("it has no input ", i));
  }
  for (size_t i = 1; i < node.outputs.size() && node.op != "Split"; ++i) {
    if (!node.outputs[i].empty() && state.Uses(node.outputs[i]) > 0)
      return absl::UnimplementedError("its second output is used");
  }
  return absl::OkStatus();
}

absl::Status LowerNode(PlanState& state, const OnnxNode& node) {
  HPS_RETURN_IF_ERROR(CheckNode(state, node));
  if (IsFolded(state, node)) return FoldNode(state, node);
  if (node.inputs.empty()) return absl::InvalidArgumentError("it has no input");
  if (IsLayoutOperator(node.op)) {
    // A constant expanded to the batch, or picked by values of a sample.
    if (state.Constant(node.inputs.front()) != nullptr)
      return absl::UnimplementedError("its arguments are not constant");
    return LowerLayout(state, node);
  }
  if (node.op == "Gemm") return LowerGemm(state, node);
  if (node.op == "MatMul") return LowerMatMul(state, node);
  if (node.op == "Concat") return LowerConcat(state, node);
  if (node.op == "Split") return LowerSplit(state, node);
  if (node.op == "Cast") return LowerCast(state, node);
  if (node.op == "Softmax" || node.op == "LogSoftmax") return LowerSoftmax(state, node);
  if (node.op == "LayerNormalization") return LowerLayerNormalization(state, node);
  if (node.op == "BatchNormalization") return LowerBatchNormalization(state, node);
  if (ReductionOf(node.op).has_value()) return LowerReduce(state, node);
  if (IsElementwiseOperator(node.op)) return LowerElementwise(state, node);
  return absl::UnimplementedError("the device has no such operator");
}

absl::Status DefineInputs(PlanState& state) {
  for (size_t i = 0; i < state.plan().inputs.size(); ++i) {
    const OnnxValue& input = state.plan().inputs[i];
    PlanView view{.memory = PlanMemory::kInput,
                  .index = static_cast<uint32_t>(i),
                  .is_batched = true,
                  .dims = input.dims};
    if (input.dims.empty() || input.dims.front() != -1 ||
        std::any_of(input.dims.begin() + 1, input.dims.end(),
                    [](int64_t dim) { return dim < 1; })) {
      return absl::UnimplementedError(
          absl::StrCat("input '", input.name, "': only its first dimension may vary"));
    }
    view.dims.front() = 1;
    view.strides = CompactStrides(view.dims);
    HPS_RETURN_IF_ERROR(state.DefineView(input.name, view, input.element));
  }
  return absl::OkStatus();
}

absl::Status EmitOutputs(PlanState& state) {
  for (const OnnxValue& output : state.plan().outputs) {
    PlanValue& value = state.Value(output.name);
    if (!value.is_batched)
      return absl::UnimplementedError(
          absl::StrCat("output '", output.name, "' does not depend on the batch"));
    const PlanView* const made = value.As<PlanView>();
    if (made != nullptr && made->memory == PlanMemory::kBuffer && made->IsCompact() &&
        made->offset == 0) {
      state.plan().output_views.push_back(*made);
      continue;
    }
    HPS_ASSIGN_OR_RETURN(const PlanView out, state.NewBuffer(value.dims, true));
    HPS_RETURN_IF_ERROR(state.EmitInto(value, out));
    value.made = out;
    state.plan().output_views.push_back(out);
  }
  return absl::OkStatus();
}

// First and last step that touches a buffer.
struct Life {
  int64_t begin = -1;
  int64_t end = -1;
};

std::vector<Life> LivesOf(const DensePlan& plan) {
  std::vector<Life> lives(plan.buffers.size());
  const auto count = static_cast<int64_t>(plan.steps.size());
  for (int64_t i = 0; i < count; ++i) {
    ForEachView(plan.steps[static_cast<size_t>(i)], [&](const PlanView& view) {
      if (view.memory != PlanMemory::kBuffer) return;
      Life& life = lives[view.index];
      if (life.begin < 0) life.begin = i;
      life.end = i;
    });
  }
  for (const PlanView& output : plan.output_views) lives[output.index].end = count;
  return lives;
}

}  // namespace

void PlaceBuffers(DensePlan& plan) {
  constexpr int64_t kAlignment = 64;  // elements, of every batch
  const std::vector<Life> lives = LivesOf(plan);
  std::vector<size_t> order(plan.buffers.size());
  for (size_t b = 0; b < order.size(); ++b) order[b] = b;
  // Large ones first: small ones then fill the gaps.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return plan.buffers[a].sample_elements > plan.buffers[b].sample_elements;
  });
  std::vector<size_t> placed;
  const auto end_of = [&](size_t b) {
    const int64_t end = plan.buffers[b].offset + plan.buffers[b].sample_elements;
    return (end + kAlignment - 1) / kAlignment * kAlignment;
  };
  plan.arena_elements = 0;
  plan.padded_elements = 0;
  for (const size_t b : order) {
    if (lives[b].begin < 0) continue;  // no step uses it
    PlanBuffer& buffer = plan.buffers[b];
    if (buffer.is_zero_padded) {
      buffer.offset = plan.padded_elements;
      plan.padded_elements = end_of(b);
      continue;
    }
    buffer.offset = 0;
    bool moved = true;
    while (moved) {
      moved = false;
      for (const size_t other : placed) {
        const bool at_once =
            lives[b].begin <= lives[other].end && lives[other].begin <= lives[b].end;
        const bool overlaps =
            buffer.offset < end_of(other) && plan.buffers[other].offset < end_of(b);
        if (!at_once || !overlaps) continue;
        buffer.offset = end_of(other);
        moved = true;
      }
    }
    placed.push_back(b);
    plan.arena_elements = std::max(plan.arena_elements, end_of(b));
  }
}

absl::StatusOr<DensePlan> MakeDensePlan(const OnnxGraph& graph) {
  PlanState state(graph);
  HPS_RETURN_IF_ERROR(DefineInputs(state));
  for (const OnnxNode& node : graph.nodes) {
    const absl::Status lowered = LowerNode(state, node);
    if (!lowered.ok()) {
      return absl::Status(lowered.code(), absl::StrCat("node '", Text(node.name), "' (",
                                                       Text(node.op), "): ", lowered.message()));
    }
  }
  HPS_RETURN_IF_ERROR(EmitOutputs(state));
  ElideCopies(state.plan());
  FuseNarrowProducts(state.plan());
  PlaceBuffers(state.plan());
  return std::move(state.plan());
}

}  // namespace hps
