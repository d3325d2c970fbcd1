// The first values of a row. They depend on the key and the seed only: not on the order of keys,
// the number of ranks or the machine.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "hps/types.h"

namespace hps {

// Uniform in [low, high); low == high gives a constant. A plain value.
struct Initializer {
  float low = 0;
  float high = 0;
  uint64_t seed = 0;
};

// Errors: INVALID_ARGUMENT: bounds that are not finite, or low > high.
absl::Status ValidateInitializer(const Initializer& initializer);

void InitializeRow(const Initializer& initializer, Key key, std::span<float> row);

}  // namespace hps
