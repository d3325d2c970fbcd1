#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "network/plan/lower.h"

namespace hps {
namespace {

bool IsBoolean(OnnxElement element) { return element == OnnxElement::kBool; }

// An elementwise program in the making.
class Expression {
 public:
  Expression(PlanState& state, const PlanView& shape) : state_(state), shape_(shape) {}

  // The operand that stands for a value. A pending value that nothing else uses becomes a part of
  // this program.
  absl::StatusOr<uint8_t> Operand(PlanValue& value, bool is_used_once) {
    PendingElementwise* const pending = value.As<PendingElementwise>();
    if (pending != nullptr && is_used_once && value.dims == shape_.dims && Fits(*pending))
      return Inlined(*pending);
    HPS_ASSIGN_OR_RETURN(const PlanView view, state_.ViewOf(value));
    const std::optional<PlanView> fitting = BroadcastOf(view, shape_.dims, shape_.is_batched);
    if (!fitting.has_value()) return absl::UnimplementedError("its batch would be repeated");
    return Input(*fitting);
  }

  // The result of a new instruction. An operand of kPlanImmediate stands for `immediate`.
  uint8_t Add(PlanOperation operation, std::vector<uint8_t> operands, float immediate = 0) {
    PlanInstruction instruction{.operation = operation, .immediate = immediate};
    std::copy(operands.begin(), operands.end(), instruction.operands);
    made_.program.push_back(instruction);
    return static_cast<uint8_t>(kPlanInputsMax + made_.program.size() - 1);
  }

  PendingElementwise& made() { return made_; }

 private:
  // Room for what the node itself adds is kept: at most three inputs and eight instructions.
  bool Fits(const PendingElementwise& pending) const {
    return made_.inputs.size() + pending.inputs.size() + 2 <= kPlanInputsMax &&
           made_.program.size() + pending.program.size() + 8 <= kPlanInstructionsMax;
  }

  uint8_t Input(const PlanView& view) {
    const auto found = std::find(made_.inputs.begin(), made_.inputs.end(), view);
    const auto at = static_cast<uint8_t>(found - made_.inputs.begin());
    if (found == made_.inputs.end()) made_.inputs.push_back(view);
    return at;
  }

  uint8_t Inlined(const PendingElementwise& pending) {
    std::vector<uint8_t> inputs;
    for (const PlanView& view : pending.inputs) inputs.push_back(Input(view));
    const auto shift = static_cast<uint8_t>(made_.program.size());
    for (PlanInstruction instruction : pending.program) {
      for (uint8_t& operand : instruction.operands) {
        if (operand == kPlanImmediate) continue;
        if (operand < kPlanInputsMax) {
          operand = operand < inputs.size() ? inputs[operand] : uint8_t{0};
        } else {
          operand = static_cast<uint8_t>(operand + shift);
        }
      }
      made_.program.push_back(instruction);
    }
    return static_cast<uint8_t>(kPlanInputsMax + made_.program.size() - 1);
  }

  PlanState& state_;
  const PlanView& shape_;  // dims and whether it is batched
  PendingElementwise made_;
};

PlanValue ValueOf(Expression& expression, const PlanView& shape, OnnxElement element) {
  PlanValue value{
      .element = element, .is_batched = true, .dims = shape.dims, .made = PendingElementwise()};
  value.made = std::move(expression.made());
  return value;
}

// The one number that a constant is, if it is.
std::optional<float> ScalarOf(const PlanValue& value) {
  const PlanConstant* const constant = std::get_if<PlanConstant>(&value.made);
  if (constant == nullptr || constant->ElementCount() != 1) return std::nullopt;
  if (!constant->IsFloat() && constant->integers.front().per_sample != 0) return std::nullopt;
  return constant->Floats().front();
}

absl::Status CheckElement(const PlanValue& value) {
  if (value.As<PlanConstant>() != nullptr || IsFloatElement(value.element) ||
      IsBoolean(value.element)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("it computes with integers that are not constant");
}

bool IsUsedOnce(PlanState& state, const OnnxNode& node, size_t input) {
  return state.Uses(node.inputs[input]) == 1;
}

// An operand, and whether nothing else uses it.
using Operand = std::pair<PlanValue*, bool>;

// Makes one instruction of operands that are broadcast to one shape. The first operand that is one
// constant number becomes the instruction's immediate.
absl::StatusOr<PlanValue> Combine(PlanState& state, PlanOperation operation,
                                  std::span<const Operand> operands) {
  std::vector<const PlanValue*> values;
  for (const auto& [value, is_used_once] : operands) values.push_back(value);
  HPS_ASSIGN_OR_RETURN(const PlanView shape, BroadcastShape(values));
  Expression expression(state, shape);
  std::vector<uint8_t> places;
  std::optional<float> immediate;
  for (const auto& [value, is_used_once] : operands) {
    HPS_RETURN_IF_ERROR(CheckElement(*value));
    // A scalar of a higher rank than the others would add dimensions: the shape has them.
    const std::optional<float> scalar = ScalarOf(*value);
    if (scalar.has_value() && !immediate.has_value()) {
      immediate = scalar;
      places.push_back(kPlanImmediate);
      continue;
    }
    HPS_ASSIGN_OR_RETURN(const uint8_t place, expression.Operand(*value, is_used_once));
    places.push_back(place);
  }
  expression.Add(operation, places, immediate.value_or(0));
  return ValueOf(expression, shape,
                 IsComparison(operation) ? OnnxElement::kBool : values.front()->element);
}

absl::Status LowerVariadic(PlanState& state, const OnnxNode& node, PlanOperation operation) {
  PlanValue total = state.Value(node.inputs.front());
  if (node.inputs.size() == 1) return state.Forward(node.inputs[0], node.outputs[0], total.element);
  if (total.As<PlanConstant>() == nullptr && state.Uses(node.inputs.front()) != 1) {
    HPS_RETURN_IF_ERROR(state.View(node.inputs.front()).status());
    total = state.Value(node.inputs.front());
  }
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    PlanValue& next = state.Value(node.inputs[i]);
    if (total.As<PlanConstant>() != nullptr && next.As<PlanConstant>() != nullptr)
      return absl::UnimplementedError("its first two inputs are constants");
    const Operand operands[] = {{&total, true}, {&next, IsUsedOnce(state, node, i)}};
    HPS_ASSIGN_OR_RETURN(total, Combine(state, operation, operands));
  }
  if (node.op == "Mean") {
    HPS_ASSIGN_OR_RETURN(const PlanView shape, BroadcastShape({&total}));
    Expression expression(state, shape);
    HPS_ASSIGN_OR_RETURN(const uint8_t sum, expression.Operand(total, true));
    expression.Add(PlanOperation::kMultiply, {sum, kPlanImmediate},
                   1.0F / static_cast<float>(node.inputs.size()));
    total = ValueOf(expression, shape, total.element);
  }
  return state.Define(node.outputs.front(), std::move(total));
}

absl::Status LowerWhere(PlanState& state, const OnnxNode& node) {
  if (node.inputs.size() != 3) return absl::InvalidArgumentError("it has not three inputs");
  std::vector<Operand> operands;
  for (size_t i = 0; i < 3; ++i)
    operands.emplace_back(&state.Value(node.inputs[i]), IsUsedOnce(state, node, i));
  HPS_ASSIGN_OR_RETURN(PlanValue value, Combine(state, PlanOperation::kSelect, operands));
  value.element = state.Value(node.inputs[1]).element;
  return state.Define(node.outputs.front(), std::move(value));
}

// min and max of Clip: inputs since opset 11, attributes before.
absl::StatusOr<std::optional<float>> ClipBound(PlanState& state, const OnnxNode& node, size_t input,
                                               const char* attribute) {
  if (node.inputs.size() > input && !node.inputs[input].empty()) {
    const std::optional<float> bound = ScalarOf(state.Value(node.inputs[input]));
    if (!bound.has_value()) return absl::UnimplementedError("its bounds are not constant");
    return bound;
  }
  if (!node.floats.contains(attribute)) return std::optional<float>();
  return std::optional(node.Float(attribute, 0));
}

// Operators of one tensor that need attributes, as a few instructions.
absl::StatusOr<bool> AddSpecial(PlanState& state, const OnnxNode& node, Expression& expression,
                                uint8_t x) {
  using enum PlanOperation;
  constexpr uint8_t kImmediate = kPlanImmediate;
  if (node.op == "LeakyRelu") {
    expression.Add(kLeakyRelu, {x, kImmediate}, node.Float("alpha", 0.01F));
  } else if (node.op == "Elu") {
    expression.Add(kElu, {x, kImmediate}, node.Float("alpha", 1.0F));
  } else if (node.op == "Selu") {
    const uint8_t elu = expression.Add(kElu, {x, kImmediate}, node.Float("alpha", 1.67326319F));
    expression.Add(kMultiply, {elu, kImmediate}, node.Float("gamma", 1.05070102F));
  } else if (node.op == "HardSigmoid" || node.op == "HardSwish") {
    const bool is_swish = node.op == "HardSwish";
    const float alpha = is_swish ? 1.0F / 6.0F : node.Float("alpha", 0.2F);
    const uint8_t scaled = expression.Add(kMultiply, {x, kImmediate}, alpha);
    const uint8_t moved =
        expression.Add(kAdd, {scaled, kImmediate}, is_swish ? 0.5F : node.Float("beta", 0.5F));
    const uint8_t above = expression.Add(kMaximum, {moved, kImmediate}, 0);
    const uint8_t within = expression.Add(kMinimum, {above, kImmediate}, 1);
    if (is_swish) expression.Add(kMultiply, {x, within});
  } else if (node.op == "Mish") {
    const uint8_t soft = expression.Add(kSoftplus, {x});
    expression.Add(kMultiply, {x, expression.Add(kTanh, {soft})});
  } else if (node.op == "Gelu") {
    const auto how = node.texts.find("approximate");
    const bool is_tanh = how != node.texts.end() && how->second == "tanh";
    expression.Add(is_tanh ? kGeluTanh : kGelu, {x});
  } else if (node.op == "Clip") {
    HPS_ASSIGN_OR_RETURN(const std::optional<float> low, ClipBound(state, node, 1, "min"));
    HPS_ASSIGN_OR_RETURN(const std::optional<float> high, ClipBound(state, node, 2, "max"));
    uint8_t clipped = x;
    if (low.has_value()) clipped = expression.Add(kMaximum, {clipped, kImmediate}, *low);
    if (high.has_value()) clipped = expression.Add(kMinimum, {clipped, kImmediate}, *high);
    if (clipped == x) expression.Add(kCopy, {x});
  } else {
    return false;
  }
  return true;
}

constexpr std::string_view kSpecial[] = {"LeakyRelu", "Elu",  "Selu", "HardSigmoid",
                                         "HardSwish", "Mish", "Gelu", "Clip"};

absl::Status LowerUnary(PlanState& state, const OnnxNode& node) {
  PlanValue& value = state.Value(node.inputs.front());
  HPS_RETURN_IF_ERROR(CheckElement(value));
  HPS_ASSIGN_OR_RETURN(const PlanView shape, BroadcastShape({&value}));
  Expression expression(state, shape);
  HPS_ASSIGN_OR_RETURN(const uint8_t x, expression.Operand(value, IsUsedOnce(state, node, 0)));
  OnnxElement element = value.element;
  if (const std::optional<PlanOperation> operation = UnaryOperation(node.op)) {
    expression.Add(*operation, {x});
    if (IsComparison(*operation)) element = OnnxElement::kBool;
  } else {
    HPS_ASSIGN_OR_RETURN(const bool is_known, AddSpecial(state, node, expression, x));
    HPS_CHECK(is_known);
  }
  return state.Define(node.outputs.front(), ValueOf(expression, shape, element));
}

}  // namespace

absl::StatusOr<PlanView> BroadcastShape(const std::vector<const PlanValue*>& values) {
  PlanView shape;
  size_t rank = 0;
  for (const PlanValue* value : values) {
    rank = std::max(rank, value->dims.size());
    shape.is_batched |= value->is_batched;
  }
  shape.dims.assign(rank, 1);
  for (const PlanValue* value : values) {
    const size_t missing = rank - value->dims.size();
    if (value->is_batched && missing != 0)
      return absl::UnimplementedError("its batch would not stay the first dimension");
    for (size_t i = 0; i < value->dims.size(); ++i) {
      int64_t& dim = shape.dims[missing + i];
      if (dim == 1) dim = value->dims[i];
      if (value->dims[i] != 1 && value->dims[i] != dim)
        return absl::InvalidArgumentError("the shapes of its inputs do not fit");
    }
  }
  if (!shape.is_batched) return shape;
  for (const PlanValue* value : values) {
    if (value->dims.size() != rank) continue;
    if (value->dims.front() != (value->is_batched ? shape.dims.front() : 1))
      return absl::UnimplementedError("its batch would be repeated");
  }
  return shape;
}

bool IsElementwiseOperator(std::string_view op) {
  return op == "Where" || op == "Mean" || UnaryOperation(op).has_value() ||
         BinaryOperation(op).has_value() ||
         std::find(std::begin(kSpecial), std::end(kSpecial), op) != std::end(kSpecial);
}

absl::Status LowerElementwise(PlanState& state, const OnnxNode& node) {
  if (node.inputs.empty() || node.inputs.front().empty())
    return absl::InvalidArgumentError("it has no input");
  HPS_ASSIGN_OR_RETURN(const bool is_taken, TakeIntoGemm(state, node));
  if (is_taken) return absl::OkStatus();
  if (node.op == "Where") return LowerWhere(state, node);
  if (node.op == "Mean") return LowerVariadic(state, node, PlanOperation::kAdd);
  if (const std::optional<PlanOperation> operation = BinaryOperation(node.op))
    return LowerVariadic(state, node, *operation);
  return LowerUnary(state, node);
}

absl::Status LowerCast(PlanState& state, const OnnxNode& node) {
  const auto to = static_cast<OnnxElement>(node.Integer("to", 0));
  if (OnnxElementBytes(static_cast<int32_t>(to)) == 0)
    return absl::UnimplementedError("it casts to a type that is not supported");
  PlanValue& value = state.Value(node.inputs.front());
  const bool from_float = IsFloatElement(value.element);
  if (IsFloatElement(to) || (!from_float && !IsBoolean(to)))
    return state.Forward(node.inputs.front(), node.outputs.front(), to);
  HPS_ASSIGN_OR_RETURN(const PlanView shape, BroadcastShape({&value}));
  Expression expression(state, shape);
  HPS_ASSIGN_OR_RETURN(const uint8_t x, expression.Operand(value, IsUsedOnce(state, node, 0)));
  expression.Add(IsBoolean(to) ? PlanOperation::kIsNotZero : PlanOperation::kTruncate, {x});
  return state.Define(node.outputs.front(), ValueOf(expression, shape, to));
}

absl::Status LowerBatchNormalization(PlanState& state, const OnnxNode& node) {
  if (node.inputs.size() != 5) return absl::InvalidArgumentError("it has not five inputs");
  if (node.Integer("training_mode", 0) != 0) return absl::UnimplementedError("it trains");
  std::vector<float> parts[4];  // scale, bias, mean, variance
  for (size_t i = 0; i < 4; ++i) {
    const PlanConstant* const part = state.Constant(node.inputs[i + 1]);
    if (part == nullptr || !part->IsFloat())
      return absl::UnimplementedError("its parameters are not constant");
    parts[i] = part->floats;
  }
  PlanValue& value = state.Value(node.inputs.front());
  const size_t channels = parts[0].size();
  const bool fits = value.dims.size() >= 2 && value.dims[1] == static_cast<int64_t>(channels) &&
                    parts[1].size() == channels && parts[2].size() == channels &&
                    parts[3].size() == channels;
  if (!fits) return absl::InvalidArgumentError("its parameters do not fit its input");
  std::vector<float> scale, shift;
  for (size_t i = 0; i < channels; ++i) {
    scale.push_back(parts[0][i] / std::sqrt(parts[3][i] + node.Float("epsilon", 1e-5F)));
    shift.push_back(parts[1][i] - parts[2][i] * scale[i]);
  }
  PendingGemm* const gemm = value.As<PendingGemm>();
  if (gemm != nullptr && !gemm->has_relu && value.dims.size() == 2 && IsUsedOnce(state, node, 0)) {
    const size_t k = gemm->weights.size() / channels;
    for (size_t i = 0; i < gemm->weights.size(); ++i) gemm->weights[i] *= scale[i / k];
    if (gemm->bias.empty()) gemm->bias.assign(channels, 0.0F);
    for (size_t i = 0; i < channels; ++i) gemm->bias[i] = gemm->bias[i] * scale[i] + shift[i];
    return state.Forward(node.inputs.front(), node.outputs.front(), value.element);
  }
  PlanView shape{.is_batched = true, .dims = value.dims};
  Expression expression(state, shape);
  HPS_ASSIGN_OR_RETURN(const uint8_t x, expression.Operand(value, IsUsedOnce(state, node, 0)));
  uint8_t operands[2];
  for (size_t i = 0; i < 2; ++i) {
    PlanConstant constant{.dims = std::vector<int64_t>(value.dims.size() - 1, 1),
                          .floats = i == 0 ? scale : shift};
    constant.dims.front() = static_cast<int64_t>(channels);
    PlanValue of{.dims = constant.dims, .made = PlanConstant()};
    of.made = std::move(constant);
    HPS_ASSIGN_OR_RETURN(operands[i], expression.Operand(of, false));
  }
  const uint8_t scaled = expression.Add(PlanOperation::kMultiply, {x, operands[0]});
  expression.Add(PlanOperation::kAdd, {scaled, operands[1]});
  return state.Define(node.outputs.front(), ValueOf(expression, shape, value.element));
}

}  // namespace hps
