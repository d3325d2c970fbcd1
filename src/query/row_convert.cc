#include "query/row_convert.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace hps {
namespace {

// Without a branch, so that the compiler makes vector code of the loop around it. Source: IEEE 754
// binary16: 5 bits of exponent with bias 15; binary32: 8 bits with bias 127.
uint32_t Float16ToFloat32Bits(uint16_t half) {
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

uint32_t Bfloat16ToFloat32Bits(uint16_t value) { return uint32_t{value} << 16; }

template <typename Convert>
void ConvertElements(const std::byte* from, size_t element_count, std::byte* to, Convert convert) {
  for (size_t i = 0; i < element_count; ++i) {
    const auto element = LoadLittleEndian<uint16_t>(from + i * sizeof(uint16_t));
    StoreLittleEndian(to + i * sizeof(uint32_t), convert(element));
  }
}

}  // namespace

void ConvertToFloat32(Dtype dtype, const std::byte* from, size_t element_count, std::byte* to) {
  switch (dtype) {
    case Dtype::kFloat32:
      std::memcpy(to, from, element_count * sizeof(float));
      return;
    case Dtype::kFloat16:
      ConvertElements(from, element_count, to, [](uint16_t x) { return Float16ToFloat32Bits(x); });
      return;
    case Dtype::kBfloat16:
      ConvertElements(from, element_count, to, [](uint16_t x) { return Bfloat16ToFloat32Bits(x); });
      return;
  }
}

}  // namespace hps
