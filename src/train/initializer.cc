#include "train/initializer.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace hps {
namespace {

// The output function of SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The upper 24 bits as a float in [0, 1), which represents each of them exactly.
float UnitFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

}  // namespace

absl::Status ValidateInitializer(const Initializer& initializer) {
  if (std::isfinite(initializer.low) && std::isfinite(initializer.high) &&
      initializer.low <= initializer.high) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("initializer: not a range: [", initializer.low, ", ", initializer.high, ")"));
}

void InitializeRow(const Initializer& initializer, Key key, std::span<float> row) {
  const float width = initializer.high - initializer.low;
  uint64_t state = HashKey(key, initializer.seed);
  for (size_t i = 0; i < row.size(); i += 2) {
    state += 0x9e3779b97f4a7c15;
    const uint64_t bits = Mix(state);
    row[i] = initializer.low + width * UnitFloat(static_cast<uint32_t>(bits));
    if (i + 1 < row.size())
      row[i + 1] = initializer.low + width * UnitFloat(static_cast<uint32_t>(bits >> 32));
  }
}

}  // namespace hps
