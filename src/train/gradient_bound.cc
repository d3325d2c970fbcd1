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
constexpr double kFloatMax = std::numeric_limits<float>::max();
// Constant numbers of values, so that the compiler makes vectors of the inner loops. The small one
// is for narrow rows that are looked at one by one.
constexpr size_t kBlock = 256;
constexpr size_t kSmallBlock = 16;

// Bits of magnitudes ascend with them; those of infinity and NaN are the largest. The result is
// negative if the value is above the limit, which is not negative itself.
int32_t RoomBelow(float value, int32_t limit) {
  return limit - (std::bit_cast<int32_t>(value) & kMagnitude);
}

// The signs of all results in one.
template <size_t kCount>
int32_t RoomsBelow(const float* values, int32_t limit) {
  int32_t rooms = 0;
  for (size_t i = 0; i < kCount; ++i) rooms |= RoomBelow(values[i], limit);
  return rooms;
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
  if (limit < 0) return values.empty();
  const auto limit_bits = std::bit_cast<int32_t>(limit) & kMagnitude;
  int32_t rooms = 0;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock)
    rooms |= RoomsBelow<kBlock>(values.data() + i, limit_bits);
  for (; i + kSmallBlock <= values.size(); i += kSmallBlock)
    rooms |= RoomsBelow<kSmallBlock>(values.data() + i, limit_bits);
  for (; i < values.size(); ++i) rooms |= RoomBelow(values[i], limit_bits);
  return rooms >= 0;
}

}  // namespace hps
