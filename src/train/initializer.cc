#include "train/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

// Beyond every value of InverseNormal.
constexpr double kDeviationsMax = 40;

absl::Status ValidateNormal(const Initializer& initializer) {
  const double largest =
      std::fabs(initializer.mean) + kDeviationsMax * std::fabs(initializer.deviation);
  // Written so that NaN is refused.
  if (!(initializer.deviation >= 0 && largest <= std::numeric_limits<float>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer: not a normal distribution of float32 values: mean ",
                     initializer.mean, ", deviation ", initializer.deviation));
  }
  if (!(initializer.low <= initializer.high && initializer.probability_low >= 0 &&
        initializer.probability_low < initializer.probability_high &&
        initializer.probability_high <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer: not a part of a normal distribution: [", initializer.low, ", ",
                     initializer.high, "], probabilities ", initializer.probability_low, " to ",
                     initializer.probability_high));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateInitializer(const Initializer& initializer) {
  if (initializer.kind == InitializerKind::kNormal) return ValidateNormal(initializer);
  if (std::isfinite(initializer.low) && std::isfinite(initializer.high) &&
      initializer.low <= initializer.high) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("initializer: not a range: [", initializer.low, ", ", initializer.high, ")"));
}

void InitializeRow(const Initializer& initializer, Key key, std::span<float> row) {
  const uint64_t state = HashKey(key, initializer.seed);
  for (size_t i = 0; i < row.size(); i += 2) {
    const uint64_t bits = InitialBits(state, i / 2);
    row[i] = InitialValue(initializer, static_cast<uint32_t>(bits));
    if (i + 1 < row.size())
      row[i + 1] = InitialValue(initializer, static_cast<uint32_t>(bits >> 32));
  }
}

}  // namespace hps
