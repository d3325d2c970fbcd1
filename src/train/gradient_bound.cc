#include "train/gradient_bound.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace hps {
namespace {

constexpr int32_t kMagnitude = 0x7fffffff;
constexpr double kScaledSumMax = 0x1p47;
constexpr double kFloatMax = std::numeric_limits<float>::max();
// Constant numbers of values, so that the compiler makes vectors of the inner loops. The small one
// is for narrow rows that are looked at one by one.
constexpr size_t kBlock = 64;
constexpr size_t kSmallBlock = 16;

// Bits of magnitudes ascend with them; those of infinity and NaN are the largest.
uint32_t IsAbove(float value, int32_t limit) {
  return static_cast<uint32_t>((std::bit_cast<int32_t>(value) & kMagnitude) > limit);
}

}  // namespace

double GradientFactor(const BagBatch& batch) {
  if (batch.weights.empty()) return static_cast<double>(batch.keys.size());
  double sum = 0;
  for (const float weight : batch.weights) sum += std::fabs(double{weight});
  return sum;
}

float GradientLimit(double factor, float scale) {
  if (!std::isfinite(factor) || !std::isfinite(scale)) return -1;
  const double scaled_factor = factor * std::fabs(double{scale});
  double limit = kFloatMax;
  if (factor > 1) limit = kFloatMax / factor;
  if (scaled_factor > 0) limit = std::min(limit, kScaledSumMax / scaled_factor);
  return static_cast<float>(limit);
}

bool AllWithin(std::span<const float> values, float limit) {
  const auto limit_bits = std::bit_cast<int32_t>(limit);
  uint32_t above = 0;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    const float* const block = values.data() + i;
    for (size_t j = 0; j < kBlock; ++j) above |= IsAbove(block[j], limit_bits);
  }
  for (; i + kSmallBlock <= values.size(); i += kSmallBlock) {
    const float* const block = values.data() + i;
    for (size_t j = 0; j < kSmallBlock; ++j) above |= IsAbove(block[j], limit_bits);
  }
  for (; i < values.size(); ++i) above |= IsAbove(values[i], limit_bits);
  return above == 0;
}

}  // namespace hps
