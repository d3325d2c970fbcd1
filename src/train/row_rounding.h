// Rows whose elements have 16 bits: how float32 values are rounded to them.
//
// An update computes in float32 and rounds its result at random to one of the two nearest values of
// the type, so that the mean is the result: updates that are smaller than half of the distance
// between two values still count in the mean (stochastic rounding; Gupta et al., 2015). The random
// bits depend on key, seed and the number of the row's updates only, so that equal updates of equal
// rows give equal bits, on every machine.
//
// First values, and values that are written, are rounded to the nearest one. A finite value never
// becomes infinite: the largest value of the type takes its place.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hash.h"
#include "base/macros.h"
#include "hps/types.h"
#include "train/initializer.h"

namespace hps {
namespace internal {

inline constexpr uint32_t kSignBit = 0x80000000;
inline constexpr uint32_t kInfinity = 0x7f800000;  // of float32; larger magnitudes are NaN

// What rounding does to a magnitude that is a normal number of the type: it adds and cuts off.
struct RoundedBits {
  uint32_t cut;        // bits of float32 that the type does not have
  uint32_t magnitude;  // the type's largest, as float32
};
HPS_HOST_DEVICE constexpr RoundedBits RoundedBitsOf(Dtype dtype) {
  return dtype == Dtype::kBfloat16 ? RoundedBits{16, 0x7f7f0000} : RoundedBits{13, 0x477fe000};
}
// float32 of 2^-14, the least normal float16.
inline constexpr uint32_t kFloat16Normal = 0x38800000;

HPS_HOST_DEVICE constexpr float WithSign(uint32_t magnitude, uint32_t bits) {
  return std::bit_cast<float>(magnitude | (bits & kSignBit));
}

HPS_HOST_DEVICE constexpr float CutOff(uint32_t bits, uint32_t added, const RoundedBits& type) {
  const uint32_t magnitude = ((bits & ~kSignBit) + added) >> type.cut << type.cut;
  return WithSign(magnitude < type.magnitude ? magnitude : type.magnitude, bits);
}

// NaN without its payload, which may be cut off.
HPS_HOST_DEVICE constexpr float NotFinite(uint32_t bits) {
  return WithSign((bits & ~kSignBit) == kInfinity ? kInfinity : kInfinity | 0x00400000, bits);
}

}  // namespace internal

// The nearest value of a type of 16 bits, of two the even one.
HPS_HOST_DEVICE inline float RoundedToNearest(float value, Dtype dtype) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~internal::kSignBit;
  if (magnitude >= internal::kInfinity) return internal::NotFinite(bits);
  if (dtype == Dtype::kFloat16 && magnitude < internal::kFloat16Normal) {
    // Float32 values from 0.5 to 1 have the distance of float16's smallest ones, 2^-24.
    const float rounded = (std::bit_cast<float>(magnitude) + 0.5F) - 0.5F;
    return internal::WithSign(std::bit_cast<uint32_t>(rounded), bits);
  }
  const internal::RoundedBits type = internal::RoundedBitsOf(dtype);
  const uint32_t below_half = (uint32_t{1} << (type.cut - 1)) - 1;
  return internal::CutOff(bits, below_half + (magnitude >> type.cut & 1), type);
}

// One of the two nearest values of a type of 16 bits. `random`: 16 bits.
HPS_HOST_DEVICE inline float RoundedAtRandom(float value, Dtype dtype, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~internal::kSignBit;
  if (magnitude >= internal::kInfinity) return internal::NotFinite(bits);
  if (dtype == Dtype::kFloat16 && magnitude < internal::kFloat16Normal) {
    // A whole number of 2^-40; float16's smallest values are whole numbers of 2^-24.
    const auto parts = static_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p40F);
    const float rounded = static_cast<float>((parts + random) >> 16) * 0x1p-24F;
    return internal::WithSign(std::bit_cast<uint32_t>(rounded), bits);
  }
  const internal::RoundedBits type = internal::RoundedBitsOf(dtype);
  return internal::CutOff(bits, random >> (16 - type.cut), type);
}

// Where the random bits of a row begin.
HPS_HOST_DEVICE inline uint64_t RoundingState(Key key, uint64_t seed) {
  return HashKey(key, ~seed);
}

// The random bits of the elements 4 * quad to 4 * quad + 3, 16 for each, the lowest first.
// `updates`: of the row, this one included.
HPS_HOST_DEVICE inline uint64_t RoundingBits(uint64_t state, uint32_t updates, uint32_t quad) {
  return InitialBits(state, size_t{updates} << 32 | quad);
}

// The same for rows of the host. Float32 is left as it is.
void RoundToNearest(Dtype dtype, std::span<float> values);
void RoundAtRandom(Dtype dtype, uint64_t state, uint32_t updates, std::span<float> row);

}  // namespace hps
