// Nodes whose inputs are constants, and sizes: computed while the network is planned.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "network/plan/evaluate.h"
#include "network/plan/lower.h"

namespace hps {
namespace {

absl::Status CannotFold() {
  return absl::UnimplementedError("it can't be computed from constants here");
}

// Of plain integers; none if it overflows or there is no such operation.
std::optional<int64_t> ComputePlain(PlanOperation operation, int64_t a, int64_t b) {
  using enum PlanOperation;
  int64_t result = 0;
  switch (operation) {
    case kAdd:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case kDivide:
      return b == 0 || b == -1 ? std::nullopt : std::optional(a / b);
    case kNegate:
      return __builtin_sub_overflow(int64_t{0}, a, &result) ? std::nullopt : std::optional(result);
    case kMinimum:
      return std::min(a, b);
    case kMaximum:
      return std::max(a, b);
    case kLess:
      return a < b ? 1 : 0;
    case kGreater:
      return a > b ? 1 : 0;
    case kLessOrEqual:
      return a <= b ? 1 : 0;
    case kGreaterOrEqual:
      return a >= b ? 1 : 0;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<BatchNumber> ComputeIntegers(PlanOperation operation, BatchNumber a, BatchNumber b) {
  using enum PlanOperation;
  // A size that grows with the batch equals no constant that a network compares it with: -1.
  if (operation == kEqual) return BatchNumber{a == b ? 1 : 0, 0};
  std::optional<int64_t> fixed, per_sample;
  if (a.per_sample == 0 && b.per_sample == 0) {
    fixed = ComputePlain(operation, a.fixed, b.fixed);
    per_sample = 0;
  } else if (operation == kAdd || operation == kSubtract) {
    fixed = ComputePlain(operation, a.fixed, b.fixed);
    per_sample = ComputePlain(operation, a.per_sample, b.per_sample);
  } else if (operation == kMultiply && (a.per_sample == 0 || b.per_sample == 0)) {
    if (a.per_sample == 0) std::swap(a, b);
    fixed = ComputePlain(operation, a.fixed, b.fixed);
    per_sample = ComputePlain(operation, a.per_sample, b.fixed);
  } else if (operation == kDivide && b.per_sample == 0 && b.fixed > 0 && a.fixed % b.fixed == 0 &&
             a.per_sample % b.fixed == 0) {
    fixed = a.fixed / b.fixed;
    per_sample = a.per_sample / b.fixed;
  }
  if (!fixed.has_value() || !per_sample.has_value()) return CannotFold();
  return BatchNumber{*fixed, *per_sample};
}

// Whether the operands' elements are of the kinds that FoldElementwise reads.
bool KindsFit(const std::vector<PlanConstant>& operands, bool is_select) {
  if (is_select) {
    return operands.size() == 3 && operands[0].element == OnnxElement::kBool &&
           operands[1].IsFloat() == operands[2].IsFloat();
  }
  for (const PlanConstant& operand : operands) {
    if (!operands[0].IsFloat() && operand.IsFloat()) return false;
    if (operands[0].IsFloat() && !operand.IsFloat() && !operand.Integers().has_value())
      return false;
  }
  return true;
}

absl::Status FoldElementwise(PlanState& state, const OnnxNode& node) {
  std::optional<PlanOperation> operation = BinaryOperation(node.op);
  if (!operation.has_value()) operation = UnaryOperation(node.op);
  if (node.op == "Where") operation = PlanOperation::kSelect;
  if (!operation.has_value() || node.inputs.size() > 3) return CannotFold();
  std::vector<const PlanValue*> values;
  for (const std::string_view input : node.inputs) values.push_back(&state.Value(input));
  HPS_ASSIGN_OR_RETURN(const PlanView shape, BroadcastShape(values));
  if (shape.ElementCount() > PlanState::kElementsMax) return CannotFold();
  std::vector<PlanConstant> operands;
  for (const PlanValue* value : values) {
    const PlanConstant& constant = *value->As<PlanConstant>();
    const std::optional<PlanView> view = BroadcastOf(constant.View(), shape.dims, false);
    if (!view.has_value()) return absl::InvalidArgumentError("the shapes of its inputs do not fit");
    operands.push_back(constant.Picked(*view, {}));
  }
  const bool is_select = operation == PlanOperation::kSelect;
  if (!KindsFit(operands, is_select)) return CannotFold();
  PlanConstant out{.element = operands[is_select ? 1 : 0].element, .dims = shape.dims};
  const bool is_float = out.IsFloat();
  for (PlanConstant& operand : operands) {
    // Pow may have an integer exponent.
    if (is_float && !is_select && !operand.IsFloat()) operand.floats = operand.Floats();
  }
  for (size_t i = 0; i < static_cast<size_t>(shape.ElementCount()); ++i) {
    if (is_select) {
      const PlanConstant& from = operands[operands[0].integers[i] == BatchNumber{} ? 2 : 1];
      is_float ? out.floats.push_back(from.floats[i]) : out.integers.push_back(from.integers[i]);
    } else if (is_float) {
      const auto at = [&](size_t o) { return o < operands.size() ? operands[o].floats[i] : 0.0F; };
      out.floats.push_back(Evaluate(*operation, at(0), at(1), at(2)));
    } else {
      const BatchNumber b = operands.size() > 1 ? operands[1].integers[i] : BatchNumber{};
      HPS_ASSIGN_OR_RETURN(const BatchNumber number,
                           ComputeIntegers(*operation, operands[0].integers[i], b));
      out.integers.push_back(number);
    }
  }
  if (IsComparison(*operation)) {
    out.element = OnnxElement::kBool;
    for (const float value : out.floats) out.integers.push_back({.fixed = value != 0 ? 1 : 0});
    out.floats.clear();
  }
  return state.DefineConstant(node.outputs.front(), std::move(out));
}

absl::Status FoldConcat(PlanState& state, const OnnxNode& node) {
  PlanConstant out = *state.Constant(node.inputs.front());
  HPS_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node.Integer("axis", 0), out.dims.size()));
  int64_t outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= out.dims[d];
  out.floats.clear(), out.integers.clear();
  out.dims[axis] = 0;
  for (const std::string_view input : node.inputs) {
    const PlanConstant& part = *state.Constant(input);
    if (part.dims.size() != out.dims.size() || part.IsFloat() != out.IsFloat())
      return absl::InvalidArgumentError("the shapes of its inputs do not fit");
    for (size_t d = 0; d < out.dims.size(); ++d) {
      if (d != axis && part.dims[d] != out.dims[d])
        return absl::InvalidArgumentError("the shapes of its inputs do not fit");
    }
    out.dims[axis] += part.dims[axis];
  }
  const auto append = [outer](auto& to, const auto& from, int64_t row) {
    const auto size = static_cast<int64_t>(from.size()) / outer;
    to.insert(to.end(), from.begin() + row * size, from.begin() + (row + 1) * size);
  };
  for (int64_t row = 0; row < outer; ++row) {
    for (const std::string_view input : node.inputs) {
      append(out.floats, state.Constant(input)->floats, row);
      append(out.integers, state.Constant(input)->integers, row);
    }
  }
  return state.DefineConstant(node.outputs.front(), std::move(out));
}

absl::Status FoldCast(PlanState& state, const OnnxNode& node) {
  const PlanConstant& from = *state.Constant(node.inputs.front());
  PlanConstant out{.element = static_cast<OnnxElement>(node.Integer("to", 0)), .dims = from.dims};
  if (OnnxElementBytes(static_cast<int32_t>(out.element)) == 0)
    return absl::UnimplementedError("it casts to a type that is not supported");
  const bool is_boolean = out.element == OnnxElement::kBool;
  if (out.IsFloat()) {
    for (const BatchNumber& number : from.integers)
      if (number.per_sample != 0) return CannotFold();
    out.floats = from.Floats();
  } else if (from.IsFloat()) {
    for (const float value : from.floats) {
      if (!(value > -0x1p62F && value < 0x1p62F)) return CannotFold();
      out.integers.push_back({.fixed = is_boolean ? value != 0 : static_cast<int64_t>(value)});
    }
  } else {
    out.integers = from.integers;
    for (BatchNumber& number : out.integers)
      if (is_boolean) number = {.fixed = number == BatchNumber{} ? 0 : 1};
  }
  return state.DefineConstant(node.outputs.front(), std::move(out));
}

absl::Status FoldShape(PlanState& state, const OnnxNode& node) {
  const PlanValue& value = state.Value(node.inputs.front());
  const auto rank = static_cast<int64_t>(value.dims.size());
  const auto clamped = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  PlanConstant out{.element = OnnxElement::kInt64};
  for (int64_t d = clamped(node.Integer("start", 0)); d < clamped(node.Integer("end", rank)); ++d) {
    const int64_t dim = value.dims[static_cast<size_t>(d)];
    const bool is_batch = d == 0 && value.is_batched;
    out.integers.push_back(is_batch ? BatchNumber{0, dim} : BatchNumber{dim, 0});
  }
  out.dims = {static_cast<int64_t>(out.integers.size())};
  return state.DefineConstant(node.outputs.front(), std::move(out));
}

// Constant nodes that give their value as numbers.
absl::Status FoldConstantNode(PlanState& state, const OnnxNode& node) {
  PlanConstant out;
  for (const char* const name : {"value_float", "value_floats"}) {
    if (const auto found = node.floats.find(name); found != node.floats.end()) {
      out.floats = found->second;
      if (std::string_view(name) == "value_floats")
        out.dims = {static_cast<int64_t>(out.floats.size())};
      return state.DefineConstant(node.outputs.front(), std::move(out));
    }
  }
  for (const char* const name : {"value_int", "value_ints"}) {
    if (const auto found = node.integers.find(name); found != node.integers.end()) {
      out.element = OnnxElement::kInt64;
      for (const int64_t value : found->second) out.integers.push_back({.fixed = value});
      if (std::string_view(name) == "value_ints")
        out.dims = {static_cast<int64_t>(out.integers.size())};
      return state.DefineConstant(node.outputs.front(), std::move(out));
    }
  }
  return CannotFold();
}

absl::Status FoldConstantOfShape(PlanState& state, const OnnxNode& node) {
  const std::optional<std::vector<int64_t>> dims = state.Constant(node.inputs.front())->Integers();
  if (!dims.has_value()) return absl::UnimplementedError("its shape depends on the batch");
  PlanConstant value{.dims = {1}, .floats = {0.0F}};
  if (const auto found = node.tensors.find("value"); found != node.tensors.end())
    value = ConstantOf(found->second);
  PlanView view{.dims = *dims, .strides = std::vector<int64_t>(dims->size(), 0)};
  for (const int64_t dim : *dims)
    if (dim < 0) return absl::InvalidArgumentError("its shape is negative");
  if (value.ElementCount() != 1 || view.ElementCount() > PlanState::kElementsMax)
    return CannotFold();
  return state.DefineConstant(node.outputs.front(), value.Picked(view, {}));
}

}  // namespace

absl::Status FoldNode(PlanState& state, const OnnxNode& node) {
  if (node.op == "Shape") return FoldShape(state, node);
  if (node.op == "Constant") return FoldConstantNode(state, node);
  if (node.inputs.empty()) return CannotFold();
  if (node.op == "ConstantOfShape") return FoldConstantOfShape(state, node);
  if (node.op == "Cast") return FoldCast(state, node);
  if (node.op == "Concat") return FoldConcat(state, node);
  if (!IsLayoutOperator(node.op)) return FoldElementwise(state, node);
  const PlanConstant in = *state.Constant(node.inputs.front());
  std::vector<int32_t> indices;
  LayoutCall call = state.CallOf(node);
  const LayoutCall own{
      .node = node, .opset = call.opset, .arguments = call.arguments, .indices = indices};
  PlanView view = in.View();
  HPS_ASSIGN_OR_RETURN(std::optional<PlanView> out, ApplyLayout(own, view));
  if (!out.has_value()) return CannotFold();
  if (out->is_batched) {
    HPS_ASSIGN_OR_RETURN(view, state.View(node.inputs.front()));
    HPS_ASSIGN_OR_RETURN(out, ApplyLayout(call, view));
    return state.DefineView(node.outputs.front(), *out, in.element);
  }
  if (out->ElementCount() > PlanState::kElementsMax) return CannotFold();
  return state.DefineConstant(node.outputs.front(), in.Picked(*out, indices));
}

}  // namespace hps
