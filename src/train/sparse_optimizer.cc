#include "train/sparse_optimizer.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

bool IsNonNegative(float value) { return std::isfinite(value) && value >= 0; }
bool IsDecay(float value) { return value >= 0 && value < 1; }

}  // namespace

absl::Status ValidateOptimizer(const SparseOptimizer& optimizer) {
  if (!IsNonNegative(optimizer.epsilon)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: epsilon must be at least 0, not ", optimizer.epsilon));
  }
  if (!IsNonNegative(optimizer.initial_accumulator)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: the initial accumulator must be at least 0, not ",
                     optimizer.initial_accumulator));
  }
  if (!IsDecay(optimizer.beta1) || !IsDecay(optimizer.beta2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: betas must be at least 0 and below 1, not ", optimizer.beta1,
                     " and ", optimizer.beta2));
  }
  return absl::OkStatus();
}

}  // namespace hps
