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

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "hps/types.h"

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

void InitializeRow(const Initializer& initializer, Key key, std::span<float> row);

}  // namespace hps
