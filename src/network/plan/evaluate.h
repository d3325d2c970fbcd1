// What the elementwise operations of a plan mean, on the host and in kernels: nvcc compiles
// constexpr functions for both.
#pragma once

#include <cmath>

#include "network/plan/operation.h"

namespace hps {

constexpr float EvaluateUnary(PlanOperation operation, float a) {
  switch (operation) {
    case PlanOperation::kAbs:
      return ::fabsf(a);
    case PlanOperation::kNegate:
      return -a;
    case PlanOperation::kRelu:
      return a < 0 ? 0 : a;
    case PlanOperation::kSigmoid:
      return 1.0F / (1.0F + ::expf(-a));
    case PlanOperation::kTanh:
      return ::tanhf(a);
    case PlanOperation::kExp:
      return ::expf(a);
    case PlanOperation::kLog:
      return ::logf(a);
    case PlanOperation::kSqrt:
      return ::sqrtf(a);
    case PlanOperation::kReciprocal:
      return 1.0F / a;
    case PlanOperation::kErf:
      return ::erff(a);
    case PlanOperation::kCeil:
      return ::ceilf(a);
    case PlanOperation::kFloor:
      return ::floorf(a);
    case PlanOperation::kRound:
      return ::rintf(a);
    case PlanOperation::kTruncate:
      return ::truncf(a);
    case PlanOperation::kSign:
      return a > 0 ? 1.0F : (a < 0 ? -1.0F : a);
    case PlanOperation::kSin:
      return ::sinf(a);
    case PlanOperation::kCos:
      return ::cosf(a);
    case PlanOperation::kNot:
      return a == 0 ? 1.0F : 0.0F;
    case PlanOperation::kIsNotZero:
      return a != 0 ? 1.0F : 0.0F;
    case PlanOperation::kSoftplus:
      return ::fmaxf(a, 0.0F) + ::log1pf(::expf(-::fabsf(a)));
    case PlanOperation::kSoftsign:
      return a / (1.0F + ::fabsf(a));
    case PlanOperation::kGelu:
      return 0.5F * a * (1.0F + ::erff(a * 0.70710678F));
    case PlanOperation::kGeluTanh:
      return 0.5F * a * (1.0F + ::tanhf(0.79788456F * (a + 0.044715F * a * a * a)));
    default:
      return a;
  }
}

// Operands that the operation does not have are ignored.
constexpr float Evaluate(PlanOperation operation, float a, float b, float c) {
  const bool is_b_nan = b != b;
  switch (operation) {
    case PlanOperation::kElu:
      return a < 0 ? b * ::expm1f(a) : a;
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
      return ::powf(a, b);
    case PlanOperation::kMinimum:
      return b < a || is_b_nan ? b : a;
    case PlanOperation::kMaximum:
      return b > a || is_b_nan ? b : a;
    case PlanOperation::kAnd:
      return a != 0 && b != 0 ? 1.0F : 0.0F;
    case PlanOperation::kOr:
      return a != 0 || b != 0 ? 1.0F : 0.0F;
    case PlanOperation::kXor:
      return (a != 0) != (b != 0) ? 1.0F : 0.0F;
    case PlanOperation::kEqual:
      return a == b ? 1.0F : 0.0F;
    case PlanOperation::kLess:
      return a < b ? 1.0F : 0.0F;
    case PlanOperation::kGreater:
      return a > b ? 1.0F : 0.0F;
    case PlanOperation::kLessOrEqual:
      return a <= b ? 1.0F : 0.0F;
    case PlanOperation::kGreaterOrEqual:
      return a >= b ? 1.0F : 0.0F;
    case PlanOperation::kSelect:
      return a != 0 ? b : c;
    default:
      return EvaluateUnary(operation, a);
  }
}

}  // namespace hps
