#include "dense_plan/operation.h"

#include <cmath>
#include <map>

namespace hps {
namespace {

float EvaluateUnary(PlanOperation operation, float a) {
  switch (operation) {
    case PlanOperation::kAbs:
      return std::fabs(a);
    case PlanOperation::kNegate:
      return -a;
    case PlanOperation::kRelu:
      return a < 0 ? 0 : a;
    case PlanOperation::kSigmoid:
      return 1 / (1 + std::exp(-a));
    case PlanOperation::kTanh:
      return std::tanh(a);
    case PlanOperation::kExp:
      return std::exp(a);
    case PlanOperation::kLog:
      return std::log(a);
    case PlanOperation::kSqrt:
      return std::sqrt(a);
    case PlanOperation::kReciprocal:
      return 1 / a;
    case PlanOperation::kErf:
      return std::erf(a);
    case PlanOperation::kCeil:
      return std::ceil(a);
    case PlanOperation::kFloor:
      return std::floor(a);
    case PlanOperation::kRound:
      return std::nearbyint(a);
    case PlanOperation::kTruncate:
      return std::trunc(a);
    case PlanOperation::kSign:
      return a > 0 ? 1 : (a < 0 ? -1 : a);
    case PlanOperation::kSin:
      return std::sin(a);
    case PlanOperation::kCos:
      return std::cos(a);
    case PlanOperation::kNot:
      return a == 0 ? 1 : 0;
    case PlanOperation::kIsNotZero:
      return a != 0 ? 1 : 0;
    case PlanOperation::kSoftplus:
      return std::fmax(a, 0.0F) + std::log1p(std::exp(-std::fabs(a)));
    case PlanOperation::kSoftsign:
      return a / (1 + std::fabs(a));
    case PlanOperation::kGelu:
      return 0.5F * a * (1 + std::erf(a * 0.70710678F));
    case PlanOperation::kGeluTanh:
      return 0.5F * a * (1 + std::tanh(0.79788456F * (a + 0.044715F * a * a * a)));
    default:
      return a;
  }
}

}  // namespace

float EvaluateOnHost(PlanOperation operation, float a, float b, float c) {
  switch (operation) {
    case PlanOperation::kElu:
      return a < 0 ? b * std::expm1(a) : a;
    case PlanOperation::kLeakyRelu:
      return a < 0 ? b * a : a;
    case PlanOperation::kAdd:
      return a + b;
    case PlanOperation::kSubtract:
      return a - b;
    case PlanOperation::kMultiply:
      return a * b;
    case PlanOperation::kDivide:
      return a / b;
    case PlanOperation::kPower:
      return std::pow(a, b);
    case PlanOperation::kMinimum:
      return b < a || std::isnan(b) ? b : a;
    case PlanOperation::kMaximum:
      return b > a || std::isnan(b) ? b : a;
    case PlanOperation::kAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case PlanOperation::kOr:
      return a != 0 || b != 0 ? 1 : 0;
    case PlanOperation::kXor:
      return (a != 0) != (b != 0) ? 1 : 0;
    case PlanOperation::kEqual:
      return a == b ? 1 : 0;
    case PlanOperation::kLess:
      return a < b ? 1 : 0;
    case PlanOperation::kGreater:
      return a > b ? 1 : 0;
    case PlanOperation::kLessOrEqual:
      return a <= b ? 1 : 0;
    case PlanOperation::kGreaterOrEqual:
      return a >= b ? 1 : 0;
    case PlanOperation::kSelect:
      return a != 0 ? b : c;
    default:
      return EvaluateUnary(operation, a);
  }
}

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
