// The first values of a row. They depend on the key and the seed only: not on the order of keys,
// the number of ranks or the machine.
//
// Each value comes from 32 bits of SplitMix64, whose state begins with HashKey(key, seed). One
// output of it gives two values, the lower half first.
//
//   uniform  low + (high - low) * u, in float32; u: the upper 24 bits / 2^24
//   normal   clamp(mean + deviation * InverseNormal(p)), in float64, then rounded to float32;
//            u = (bits + 0.5) / 2^32, p = probability_low + (probability_high - probability_low) *
//            u
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/hash.h"
#include "base/macros.h"
#include "hps/types.h"
#include "train/inverse_normal.h"

namespace hps {

enum class InitializerKind { kUniform, kNormal };

// A plain value; check it with ValidateInitializer.
struct Initializer {
  InitializerKind kind = InitializerKind::kUniform;
  // Uniform: in [low, high); low == high gives a constant. Normal: smaller values become `low`,
  // larger ones `high`; they may be infinite.
  float low = 0;
  float high = 0;
  uint64_t seed = 0;
  // Normal. The probabilities cut the distribution: those of a standard normal variable to be below
  // each bound.
  double mean = 0;
  double deviation = 1;
  double probability_low = 0;
  double probability_high = 1;
};

// Errors: INVALID_ARGUMENT: bounds of a uniform distribution that are not finite, low > high; a
// deviation below 0; values beyond float32; probabilities that do not ascend within [0, 1].
absl::Status ValidateInitializer(const Initializer& initializer);

// The random bits of the elements 2 * pair and 2 * pair + 1 of a row; `state`: HashKey(key, seed).
// SplitMix64: G. Steele, D. Lea, C. Flood, 2014.
HPS_HOST_DEVICE inline uint64_t InitialBits(uint64_t state, size_t pair) {
  uint64_t x = state + (pair + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The element that these 32 bits make.
HPS_HOST_DEVICE inline float InitialValue(const Initializer& initializer, uint32_t bits) {
  if (initializer.kind == InitializerKind::kUniform) {
    // A float has each of the upper 24 bits.
    const float unit = static_cast<float>(bits >> 8) * 0x1p-24F;
    return initializer.low + (initializer.high - initializer.low) * unit;
  }
  const double unit = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  const double probability = initializer.probability_low +
                             (initializer.probability_high - initializer.probability_low) * unit;
  const double value = initializer.mean + initializer.deviation * InverseNormal(probability);
  return std::clamp(static_cast<float>(value), initializer.low, initializer.high);
}

void InitializeRow(const Initializer& initializer, Key key, std::span<float> row);

}  // namespace hps
