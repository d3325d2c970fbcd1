// The elementwise operations of a plan; evaluate.h has what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hps {

// Booleans are 0 and 1.
enum class PlanOperation : uint8_t {
  kCopy,
  kAbs,
  kNegate,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kLog,
  kSqrt,
  kReciprocal,
  kErf,
  kCeil,
  kFloor,
  kRound,  // half to even
  kTruncate,
  kSign,
  kSin,
  kCos,
  kNot,
  kIsNotZero,
  kSoftplus,
  kSoftsign,
  kGelu,       // by erf
  kGeluTanh,   // by tanh
  kElu,        // operand 1 is alpha
  kLeakyRelu,  // operand 1 is the slope below 0
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kPower,
  kMinimum,  // NaN if one is
  kMaximum,
  kAnd,
  kOr,
  kXor,
  kEqual,
  kLess,
  kGreater,
  kLessOrEqual,
  kGreaterOrEqual,
  kSelect,  // operand 0 != 0 ? operand 1 : operand 2
};

// The operation that an operator of ONNX is, if it is one and needs no attribute.
std::optional<PlanOperation> UnaryOperation(std::string_view op);
std::optional<PlanOperation> BinaryOperation(std::string_view op);

// Whether the result is a boolean.
bool IsComparison(PlanOperation operation);

}  // namespace hps
