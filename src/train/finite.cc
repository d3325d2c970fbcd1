#include "train/finite.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace hps {
namespace {

// Infinities and NaN have all bits of the exponent set.
constexpr uint32_t kExponent = 0x7f800000;
// A constant number of values, so that the compiler makes vectors of the inner loop.
constexpr size_t kBlock = 64;

uint32_t IsSpecial(float value) {
  return static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
}

}  // namespace

bool AllFinite(std::span<const float> values) {
  uint32_t special = 0;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    const float* const block = values.data() + i;
    for (size_t j = 0; j < kBlock; ++j) special |= IsSpecial(block[j]);
  }
  for (; i < values.size(); ++i) special |= IsSpecial(values[i]);
  return special == 0;
}

}  // namespace hps
