#include "train/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "train/inverse_normal.h"

namespace hps {
namespace {

// Beyond every value of InverseNormal.
constexpr double kDeviationsMax = 40;

// The output function of SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The upper 24 bits as a float in [0, 1), which represents each of them exactly.
float UnitFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

float NormalFloat(const Initializer& initializer, uint32_t bits) {
  const double unit = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  const double probability = initializer.probability_low +
                             (initializer.probability_high - initializer.probability_low) * unit;
  const double value = initializer.mean + initializer.deviation * InverseNormal(probability);
  return std::clamp(static_cast<float>(value), initializer.low, initializer.high);
}

// Fills the row with `value_of` 32 random bits each.
template <typename ValueOf>
void FillRow(uint64_t state, std::span<float> row, const ValueOf& value_of) {
  for (size_t i = 0; i < row.size(); i += 2) {
    state += 0x9e3779b97f4a7c15;
    const uint64_t bits = Mix(state);
    row[i] = value_of(static_cast<uint32_t>(bits));
    if (i + 1 < row.size()) row[i + 1] = value_of(static_cast<uint32_t>(bits >> 32));
  }
}

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
  if (initializer.kind == InitializerKind::kNormal) {
    FillRow(state, row, [&](uint32_t bits) { return NormalFloat(initializer, bits); });
    return;
  }
  const float low = initializer.low;
  const float width = initializer.high - low;
  FillRow(state, row, [=](uint32_t bits) { return low + width * UnitFloat(bits); });
}

}  // namespace hps
