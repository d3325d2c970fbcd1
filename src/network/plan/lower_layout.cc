#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "network/plan/lower.h"

namespace hps {
namespace {

// A concatenation [rows, parts ...] along dimension 1, reshaped part by part: to [batch, n, width]
// where each part is some rows of this width, or flat. False if it is no such reshape.
absl::StatusOr<bool> ReshapeConcat(PlanState& state, const OnnxNode& node,
                                   const std::vector<int64_t>& dims) {
  PlanValue& value = state.Value(node.inputs[0]);
  PendingConcat* const concat = value.As<PendingConcat>();
  if (concat == nullptr || concat->axis != 1 || dims.front() != value.dims.front()) return false;
  const bool to_rows = value.dims.size() == 2 && dims.size() == 3;
  const bool to_flat = value.dims.size() == 3 && dims.size() == 2;
  if (!to_rows && !to_flat) return false;
  PendingConcat reshaped{.parts = {}, .axis = 1};
  for (PendingConcat::Part& part : concat->parts) {
    if (!part.name.empty()) {
      HPS_ASSIGN_OR_RETURN(part.view, state.View(part.name));
      part.name = {};
    }
    const int64_t elements = part.view.ElementCount() / dims.front();
    if (to_rows && elements % dims[2] != 0) return false;
    const std::vector<int64_t> shape = to_rows ? std::vector{dims[0], elements / dims[2], dims[2]}
                                               : std::vector{dims[0], elements};
    const std::optional<PlanView> view = ReshapeOf(part.view, shape);
    if (!view.has_value()) return false;
    reshaped.parts.push_back({.name = {}, .view = *view});
  }
  PlanValue made{
      .element = value.element, .is_batched = true, .dims = dims, .made = PlanConstant()};
  made.made = std::move(reshaped);
  HPS_RETURN_IF_ERROR(state.Define(node.outputs.front(), std::move(made)));
  return true;
}

// Exchanges the last two of three dimensions of a concatenation: left pending, since a product of
// all pairs needs neither the concatenation nor its transpose.
bool IsPendingTranspose(PlanState& state, const OnnxNode& node) {
  const PlanValue& value = state.Value(node.inputs[0]);
  const auto order = node.integers.find("perm");
  return node.op == "Transpose" && value.As<PendingConcat>() != nullptr &&
         order != node.integers.end() && order->second == std::vector<int64_t>{0, 2, 1};
}

// Flattening keeps the dot products of pairs in order, and Gather then selects some of them.
absl::StatusOr<bool> TakeIntoPairs(PlanState& state, const OnnxNode& node, const LayoutCall& call) {
  PlanValue& value = state.Value(node.inputs[0]);
  PendingPairs* const pairs = value.As<PendingPairs>();
  if (pairs == nullptr || state.Uses(node.inputs[0]) != 1) return false;
  PlanValue made = value;
  const auto count = static_cast<int64_t>(pairs->selected.size());
  if (node.op == "Flatten" || node.op == "Reshape") {
    const PlanView in{
        .is_batched = true, .dims = value.dims, .strides = CompactStrides(value.dims)};
    HPS_ASSIGN_OR_RETURN(const std::optional<PlanView> out, ApplyLayout(call, in));
    if (!out.has_value() || out->dims != std::vector{int64_t{1}, count}) return false;
    made.dims = out->dims;
  } else if (node.op == "Gather" && value.dims.size() == 2) {
    if (node.Integer("axis", 0) != 1 && node.Integer("axis", 0) != -1) return false;
    const PlanView in{
        .is_batched = true, .dims = value.dims, .strides = CompactStrides(value.dims)};
    std::vector<int32_t> picked;
    const LayoutCall own{
        .node = node, .opset = call.opset, .arguments = call.arguments, .indices = picked};
    HPS_ASSIGN_OR_RETURN(const std::optional<PlanView> out, ApplyLayout(own, in));
    if (!out.has_value() || out->gather_dim != 1 || picked.empty()) return false;
    std::vector<int32_t> selected;
    for (const int32_t index : picked)
      selected.push_back(pairs->selected[static_cast<size_t>(index)]);
    made.dims = out->dims;
    made.As<PendingPairs>()->selected = std::move(selected);
  } else {
    return false;
  }
  HPS_RETURN_IF_ERROR(state.Define(node.outputs.front(), std::move(made)));
  return true;
}

}  // namespace

absl::Status LowerLayout(PlanState& state, const OnnxNode& node) {
  PlanValue& value = state.Value(node.inputs[0]);
  if (node.op == "Identity" || node.op == "Dropout")
    return state.Forward(node.inputs[0], node.outputs[0], value.element);
  if (IsPendingTranspose(state, node)) {
    PlanValue made{.element = value.element,
                   .is_batched = true,
                   .dims = {value.dims[0], value.dims[2], value.dims[1]},
                   .made = PendingTranspose{.of = node.inputs[0]}};
    return state.Define(node.outputs[0], std::move(made));
  }
  LayoutCall call = state.CallOf(node);
  HPS_ASSIGN_OR_RETURN(const bool is_taken, TakeIntoPairs(state, node, call));
  if (is_taken) return absl::OkStatus();
  if (value.As<PendingConcat>() != nullptr && (node.op == "Reshape" || node.op == "Flatten")) {
    const PlanView in{
        .is_batched = true, .dims = value.dims, .strides = CompactStrides(value.dims)};
    HPS_ASSIGN_OR_RETURN(const std::optional<PlanView> out, ApplyLayout(call, in));
    if (out.has_value()) {
      HPS_ASSIGN_OR_RETURN(const bool is_reshaped, ReshapeConcat(state, node, out->dims));
      if (is_reshaped) return absl::OkStatus();
    }
  }
  HPS_ASSIGN_OR_RETURN(PlanView view, state.ViewOf(value));
  HPS_ASSIGN_OR_RETURN(std::optional<PlanView> out, ApplyLayout(call, view));
  if (!out.has_value()) {
    HPS_ASSIGN_OR_RETURN(view, state.Compact(view));
    HPS_ASSIGN_OR_RETURN(out, ApplyLayout(call, view));
  }
  HPS_CHECK(out.has_value());
  return state.DefineView(node.outputs.front(), *out, value.element);
}

absl::Status LowerConcat(PlanState& state, const OnnxNode& node) {
  const PlanValue* first = nullptr;
  for (const std::string_view input : node.inputs) {
    const PlanValue& value = state.Value(input);
    if (value.is_batched) first = &value;
  }
  HPS_CHECK(first != nullptr);  // constants alone are folded
  PlanValue made{
      .element = first->element, .is_batched = true, .dims = first->dims, .made = PendingConcat()};
  HPS_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node.Integer("axis", 0), made.dims.size()));
  if (axis == 0) return absl::UnimplementedError("it joins batches");
  made.dims[axis] = 0;
  PendingConcat& concat = *made.As<PendingConcat>();
  concat.axis = axis;
  for (const std::string_view input : node.inputs) {
    const PlanValue& value = state.Value(input);
    if (value.dims.size() != made.dims.size())
      return absl::InvalidArgumentError("its inputs have different numbers of dimensions");
    if (!value.is_batched) return absl::UnimplementedError("a part does not depend on the batch");
    for (size_t d = 0; d < value.dims.size(); ++d) {
      if (d != axis && value.dims[d] != made.dims[d])
        return absl::InvalidArgumentError("the shapes of its inputs do not fit");
    }
    made.dims[axis] += value.dims[axis];
    concat.parts.push_back({.name = input});
  }
  return state.Define(node.outputs.front(), std::move(made));
}

absl::Status LowerSplit(PlanState& state, const OnnxNode& node) {
  PlanValue& value = state.Value(node.inputs[0]);
  HPS_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node.Integer("axis", 0), value.dims.size()));
  if (axis == 0 && value.is_batched) return absl::UnimplementedError("it splits the batch");
  std::vector<int64_t> sizes;
  const LayoutCall call = state.CallOf(node);
  if (call.arguments.size() > 1 && !node.inputs[1].empty()) {
    const PlanConstant* const given = call.arguments[1];
    if (given == nullptr || !given->Integers().has_value())
      return absl::UnimplementedError("its sizes are not constant");
    sizes = *given->Integers();
  } else if (const auto found = node.integers.find("split"); found != node.integers.end()) {
    sizes = found->second;
  } else {
    const auto parts = static_cast<int64_t>(node.outputs.size());
    const int64_t each = (value.dims[axis] + parts - 1) / parts;
    for (int64_t left = value.dims[axis], i = 0; i < parts; ++i, left -= each)
      sizes.push_back(std::clamp<int64_t>(left, 0, each));
  }
  int64_t total = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > value.dims[axis]) total = -1;
    if (total >= 0) total += size;
  }
  if (sizes.size() != node.outputs.size() || total != value.dims[axis])
    return absl::InvalidArgumentError("its sizes do not fit its input");
  HPS_ASSIGN_OR_RETURN(PlanView view, state.ViewOf(value));
  if (view.gather_dim == static_cast<int>(axis)) {
    HPS_ASSIGN_OR_RETURN(view, state.Compact(view));
  }
  const OnnxElement element = value.element;
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!node.outputs[i].empty())
      HPS_RETURN_IF_ERROR(
          state.DefineView(node.outputs[i], SliceOf(view, axis, begin, sizes[i], 1), element));
    begin += sizes[i];
  }
  return absl::OkStatus();
}

}  // namespace hps
