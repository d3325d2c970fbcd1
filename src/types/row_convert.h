// Converts rows of 16-bit floating point numbers to float32: the last copy of a session with
// float32 output.
//
// Every 16-bit value is exact in float32. Subnormals become normal numbers; infinities and zeros
// keep their sign; NaNs keep sign, payload and the quiet bit.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hps/types.h"

namespace hps {

// Converts one element, as bits. For the host and for kernels. Branch-free, so that the compiler
// vectorizes the loop around it. Source: IEEE 754 binary16: 5 bits of exponent with bias 15;
// binary32: 8 bits with bias 127.
constexpr uint32_t Float16ToFloat32Bits(uint16_t half) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const uint32_t magnitude = half & 0x7fffU;
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t normal = (magnitude << 13) + kRebias;
  const uint32_t not_finite = normal + kRebias;  // exponent 31 becomes 255
  // A subnormal is a whole number of 2^-24.
  const float tiny = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  const uint32_t subnormal = std::bit_cast<uint32_t>(tiny);
  const uint32_t bits =
      magnitude < 0x0400U ? subnormal : (magnitude >= 0x7c00U ? not_finite : normal);
  return bits | sign;
}

constexpr uint32_t Bfloat16ToFloat32Bits(uint16_t value) { return uint32_t{value} << 16; }

// Converts `element_count` elements of `dtype` at `from` to float32 at `to`; float32 is copied. No
// alignment is required; the ranges must not overlap.
void ConvertToFloat32(Dtype dtype, const std::byte* from, size_t element_count, std::byte* to);

// Converts in place: the elements then take twice the bytes. Float32 is left unchanged.
void ConvertToFloat32InPlace(Dtype dtype, size_t element_count, std::byte* row);

}  // namespace hps
