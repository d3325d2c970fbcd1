#include "train/sparse_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

bool IsNonNegative(float value) { return std::isfinite(value) && value >= 0; }
bool IsDecay(float value) { return value >= 0 && value < 1; }

bool HasAccumulators(OptimizerKind kind) {
  return kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kRowwiseAdagrad ||
         kind == OptimizerKind::kFtrl;
}

absl::Status ValidateFtrl(const SparseOptimizer& optimizer) {
  if (optimizer.weight_decay != 0)
    return absl::InvalidArgumentError("optimizer: FTRL has no weight decay; use its l2");
  // A gradient so small that its square is 0 would be divided by the sum of these.
  if (optimizer.beta == 0 && optimizer.l2 == 0 && optimizer.initial_accumulator == 0) {
    return absl::InvalidArgumentError(
        "optimizer: FTRL needs a beta, an l2 or an initial accumulator above 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateOptimizer(const SparseOptimizer& optimizer) {
  for (const auto& [name, value] : {std::pair{"epsilon", optimizer.epsilon},
                                    {"the initial accumulator", optimizer.initial_accumulator},
                                    {"l1", optimizer.l1},
                                    {"l2", optimizer.l2},
                                    {"beta", optimizer.beta},
                                    {"the weight decay", optimizer.weight_decay}}) {
    if (!IsNonNegative(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer: ", name, " must be at least 0, not ", value));
    }
  }
  if (!IsDecay(optimizer.beta1) || !IsDecay(optimizer.beta2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: betas must be at least 0 and below 1, not ", optimizer.beta1,
                     " and ", optimizer.beta2));
  }
  if (!IsDecay(optimizer.momentum)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer: the momentum must be at least 0 and below 1, not ", optimizer.momentum));
  }
  return optimizer.kind == OptimizerKind::kFtrl ? ValidateFtrl(optimizer) : absl::OkStatus();
}

void InitializeState(const SparseOptimizer& optimizer, size_t dim, std::span<float> state) {
  // FTRL's n comes before its z, which begins with 0.
  const size_t accumulators = HasAccumulators(optimizer.kind) ? std::min(dim, state.size()) : 0;
  std::fill_n(state.begin(), accumulators, optimizer.initial_accumulator);
  std::fill(state.begin() + static_cast<ptrdiff_t>(accumulators), state.end(), 0.0F);
}

}  // namespace hps
