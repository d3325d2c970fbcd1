#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "network/plan/lower.h"

namespace hps {
namespace {

// `axes` moved behind the other dimensions.
PlanView Moved(const PlanView& in, const std::vector<size_t>& axes) {
  std::vector<int64_t> order;
  for (size_t d = 0; d < in.dims.size(); ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end())
      order.push_back(static_cast<int64_t>(d));
  }
  for (const size_t axis : axes) order.push_back(static_cast<int64_t>(axis));
  return TransposeOf(in, order);
}

// The last `count` dimensions as one, or none if elements must move for it.
std::optional<PlanView> Merged(const PlanView& in, size_t count) {
  std::vector<int64_t> dims(in.dims.begin(), in.dims.end() - static_cast<std::ptrdiff_t>(count));
  dims.push_back(std::accumulate(in.dims.end() - static_cast<std::ptrdiff_t>(count), in.dims.end(),
                                 int64_t{1}, std::multiplies<>()));
  return ReshapeOf(in, dims);
}

// `axes` moved behind the others and made one dimension.
absl::StatusOr<PlanView> WithLast(PlanState& state, const PlanView& in,
                                  const std::vector<size_t>& axes) {
  const PlanView moved = Moved(in, axes);
  if (const std::optional<PlanView> merged = Merged(moved, axes.size())) return *merged;
  HPS_ASSIGN_OR_RETURN(const PlanView compact, state.Compact(moved));
  return *Merged(compact, axes.size());
}

// The same of what a step writes, which must not be a copy. REQUIRES: `out` is compact, or there is
// one axis.
PlanView OutputWithLast(const PlanView& out, const std::vector<size_t>& axes) {
  const std::optional<PlanView> merged = Merged(Moved(out, axes), axes.size());
  HPS_CHECK(merged.has_value());
  return *merged;
}

}  // namespace

std::optional<PlanReduction> ReductionOf(std::string_view op) {
  static const std::map<std::string_view, PlanReduction> kByName = {
      {"ReduceSum", PlanReduction::kSum},
      {"ReduceMean", PlanReduction::kMean},
      {"ReduceMax", PlanReduction::kMax},
      {"ReduceMin", PlanReduction::kMin},
      {"ReduceProd", PlanReduction::kProduct},
      {"ReduceL1", PlanReduction::kL1},
      {"ReduceSumSquare", PlanReduction::kSumSquare},
      {"ReduceL2", PlanReduction::kL2}};
  const auto found = kByName.find(op);
  return found == kByName.end() ? std::nullopt : std::optional(found->second);
}

absl::Status LowerReduce(PlanState& state, const OnnxNode& node) {
  const PlanValue& value = state.Value(node.inputs[0]);
  if (!IsFloatElement(value.element)) return absl::UnimplementedError("its input has no floats");
  HPS_ASSIGN_OR_RETURN(const auto given, AxesOf(state.CallOf(node), 1, value.dims.size()));
  if (!given.has_value() || given->empty()) {
    if (node.Integer("noop_with_empty_axes", 0) != 0)
      return state.Forward(node.inputs[0], node.outputs[0], value.element);
    return absl::UnimplementedError("it reduces over the batch");
  }
  std::vector<size_t> axes = *given;
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  if (axes.front() == 0) return absl::UnimplementedError("it reduces over the batch");
  const OnnxElement element = value.element;
  HPS_ASSIGN_OR_RETURN(const PlanView in, state.BufferView(node.inputs[0]));
  ReduceStep step{.reduction = *ReductionOf(node.op)};
  HPS_ASSIGN_OR_RETURN(step.in, WithLast(state, in, axes));
  const std::span<const int64_t> kept = std::span(step.in.dims).first(step.in.dims.size() - 1);
  HPS_ASSIGN_OR_RETURN(step.out, state.NewBuffer(kept));
  PlanView out = step.out;
  state.plan().steps.push_back(std::move(step));
  if (node.Integer("keepdims", 1) != 0) {
    for (const size_t axis : axes) {
      out.dims.insert(out.dims.begin() + static_cast<std::ptrdiff_t>(axis), 1);
      out.strides.insert(out.strides.begin() + static_cast<std::ptrdiff_t>(axis), 0);
    }
  }
  return state.DefineView(node.outputs.front(), out, element);
}

absl::Status LowerSoftmax(PlanState& state, const OnnxNode& node) {
  const PlanValue& value = state.Value(node.inputs[0]);
  if (!IsFloatElement(value.element)) return absl::UnimplementedError("its input has no floats");
  const bool is_old = state.graph().opset < 13;  // then it flattens all dimensions behind the axis
  HPS_ASSIGN_OR_RETURN(const size_t axis,
                       AxisOf(node.Integer("axis", is_old ? 1 : -1), value.dims.size()));
  if (axis == 0) return absl::UnimplementedError("it normalizes over the batch");
  std::vector<size_t> axes = {axis};
  if (is_old)
    for (size_t d = axis + 1; d < value.dims.size(); ++d) axes.push_back(d);
  const OnnxElement element = value.element;
  HPS_ASSIGN_OR_RETURN(const PlanView in, state.BufferView(node.inputs[0]));
  HPS_ASSIGN_OR_RETURN(const PlanView out, state.NewBuffer(in.dims, is_old));
  NormalizeStep step{.kind = node.op == "Softmax" ? PlanNormalization::kSoftmax
                                                  : PlanNormalization::kLogSoftmax};
  HPS_ASSIGN_OR_RETURN(step.in, WithLast(state, in, axes));
  step.out = OutputWithLast(out, axes);
  state.plan().steps.push_back(std::move(step));
  return state.DefineView(node.outputs.front(), out, element);
}

absl::Status LowerLayerNormalization(PlanState& state, const OnnxNode& node) {
  if (node.outputs.size() > 1) return absl::UnimplementedError("it has more than one output");
  if (node.inputs.size() < 2) return absl::InvalidArgumentError("it has no scale");
  const PlanValue& value = state.Value(node.inputs[0]);
  if (!IsFloatElement(value.element)) return absl::UnimplementedError("its input has no floats");
  HPS_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node.Integer("axis", -1), value.dims.size()));
  if (axis == 0) return absl::UnimplementedError("it normalizes over the batch");
  std::vector<size_t> axes;
  int64_t width = 1;
  for (size_t d = axis; d < value.dims.size(); ++d) {
    axes.push_back(d);
    width *= value.dims[d];
  }
  NormalizeStep step{.kind = PlanNormalization::kLayer, .epsilon = node.Float("epsilon", 1e-5F)};
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (i >= node.inputs.size() || node.inputs[i].empty()) continue;
    const PlanConstant* const constant = state.Constant(node.inputs[i]);
    if (constant == nullptr || !constant->IsFloat() || constant->ElementCount() != width)
      return absl::UnimplementedError(
          "its scale and bias are not constant along its last dimensions");
    (i == 1 ? step.scale : step.bias) = state.AddWeights(constant->floats);
  }
  const OnnxElement element = value.element;
  HPS_ASSIGN_OR_RETURN(const PlanView in, state.BufferView(node.inputs[0]));
  HPS_ASSIGN_OR_RETURN(const PlanView out, state.NewBuffer(in.dims, axes.size() > 1));
  HPS_ASSIGN_OR_RETURN(step.in, WithLast(state, in, axes));
  step.out = OutputWithLast(out, axes);
  state.plan().steps.push_back(std::move(step));
  return state.DefineView(node.outputs.front(), out, element);
}

}  // namespace hps
