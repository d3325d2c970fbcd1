#include "network/plan/operation.h"

#include <map>

namespace hps {

std::optional<PlanOperation> UnaryOperation(std::string_view op) {
  static const std::map<std::string_view, PlanOperation> kByName = {
      {"Abs", PlanOperation::kAbs},           {"Neg", PlanOperation::kNegate},
      {"Relu", PlanOperation::kRelu},         {"Sigmoid", PlanOperation::kSigmoid},
      {"Tanh", PlanOperation::kTanh},         {"Exp", PlanOperation::kExp},
      {"Log", PlanOperation::kLog},           {"Sqrt", PlanOperation::kSqrt},
      {"Erf", PlanOperation::kErf},           {"Reciprocal", PlanOperation::kReciprocal},
      {"Ceil", PlanOperation::kCeil},         {"Floor", PlanOperation::kFloor},
      {"Round", PlanOperation::kRound},       {"Sign", PlanOperation::kSign},
      {"Sin", PlanOperation::kSin},           {"Cos", PlanOperation::kCos},
      {"Not", PlanOperation::kNot},           {"Softplus", PlanOperation::kSoftplus},
      {"Softsign", PlanOperation::kSoftsign},
  };
  const auto found = kByName.find(op);
  return found == kByName.end() ? std::nullopt : std::optional(found->second);
}

std::optional<PlanOperation> BinaryOperation(std::string_view op) {
  static const std::map<std::string_view, PlanOperation> kByName = {
      {"Add", PlanOperation::kAdd},
      {"Sum", PlanOperation::kAdd},
      {"Sub", PlanOperation::kSubtract},
      {"Mul", PlanOperation::kMultiply},
      {"Div", PlanOperation::kDivide},
      {"Pow", PlanOperation::kPower},
      {"Min", PlanOperation::kMinimum},
      {"Max", PlanOperation::kMaximum},
      {"And", PlanOperation::kAnd},
      {"Or", PlanOperation::kOr},
      {"Xor", PlanOperation::kXor},
      {"Equal", PlanOperation::kEqual},
      {"Less", PlanOperation::kLess},
      {"Greater", PlanOperation::kGreater},
      {"LessOrEqual", PlanOperation::kLessOrEqual},
      {"GreaterOrEqual", PlanOperation::kGreaterOrEqual},
      {"PRelu", PlanOperation::kLeakyRelu},
  };
  const auto found = kByName.find(op);
  return found == kByName.end() ? std::nullopt : std::optional(found->second);
}

bool IsComparison(PlanOperation operation) {
  switch (operation) {
    case PlanOperation::kNot:
    case PlanOperation::kIsNotZero:
    case PlanOperation::kAnd:
    case PlanOperation::kOr:
    case PlanOperation::kXor:
    case PlanOperation::kEqual:
    case PlanOperation::kLess:
    case PlanOperation::kGreater:
    case PlanOperation::kLessOrEqual:
    case PlanOperation::kGreaterOrEqual:
      return true;
    default:
      return false;
  }
}

}  // namespace hps
