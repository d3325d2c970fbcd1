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
constexpr int32_t kInfinity = 0x7f800000;  // NaN has larger bits
constexpr double kScaledSumMax = 0x1p47;
// A constant number of values, so that the compiler makes vectors of the inner loop.
constexpr size_t kBlock = 64;

// Ascends with the magnitude.
int32_t MagnitudeBits(float value) { return std::bit_cast<int32_t>(value) & kMagnitude; }

}  // namespace

float LargestMagnitude(std::span<const float> values) {
  int32_t largest = 0;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    const float* const block = values.data() + i;
    for (size_t j = 0; j < kBlock; ++j) largest = std::max(largest, MagnitudeBits(block[j]));
  }
  for (; i < values.size(); ++i) largest = std::max(largest, MagnitudeBits(values[i]));
  return std::bit_cast<float>(std::min(largest, kInfinity));
}

double GradientFactor(const BagBatch& batch) {
  if (batch.weights.empty()) return static_cast<double>(batch.keys.size());
  double sum = 0;
  for (const float weight : batch.weights) sum += std::fabs(double{weight});
  return sum;
}

bool CanUpdate(double sum, float scale) {
  return sum <= double{std::numeric_limits<float>::max()} &&
         sum * std::fabs(double{scale}) <= kScaledSumMax;
}

}  // namespace hps
