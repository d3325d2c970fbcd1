#include "types/elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "types/row_convert.h"

namespace hps {
namespace {

constexpr uint32_t kFloatInfinity = 0x7f800000;
constexpr uint16_t kHalfInfinity = 0x7c00;
constexpr uint16_t kBfloatInfinity = 0x7f80;
constexpr uint16_t kHalfWithoutSign = 0x7fff;

// Counts elements whose exponent bits are all ones. Simple enough to be vectorized by the compiler.
template <typename Bits>
uint64_t CountExponentOnes(std::span<const std::byte> elements, Bits exponent) {
  uint64_t count = 0;
  for (size_t offset = 0; offset < elements.size(); offset += sizeof(Bits)) {
    const Bits bits = LoadLittleEndian<Bits>(elements.data() + offset);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

template <uint16_t (*kConvert)(float), uint16_t kInfinity>
ElementCounts Narrow(std::span<const std::byte> in, std::span<std::byte> out) {
  ElementCounts counts;
  for (size_t i = 0; i < in.size() / sizeof(float); ++i) {
    const float value = LoadLittleEndian<float>(in.data() + i * sizeof(float));
    const uint16_t narrow = kConvert(value);
    const bool finite = std::isfinite(value);
    counts.non_finite += finite ? 0 : 1;
    counts.overflowed += finite && (narrow & kHalfWithoutSign) == kInfinity ? 1 : 0;
    StoreLittleEndian(out.data() + i * sizeof(narrow), narrow);
  }
  return counts;
}

}  // namespace

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kFloatInfinity)  // NaN: becomes quiet and keeps the upper payload bits
    return static_cast<uint16_t>(sign | kHalfInfinity | 0x200 | ((magnitude >> 13) & 0x3ff));
  constexpr uint32_t kOverflow = 0x477ff000;  // 65520: the middle of the largest half and 65536
  if (magnitude >= kOverflow) return static_cast<uint16_t>(sign | kHalfInfinity);
  constexpr uint32_t kSmallestNormal = 0x38800000;  // 2^-14
  if (magnitude < kSmallestNormal) {
    // Floats near 0.5 are 2^-24 apart, like subnormal halves, so this addition rounds correctly.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F)));
  }
  magnitude += 0xfff + ((magnitude >> 13) & 1);
  constexpr uint32_t kExponentShift = (127 - 15) << 23;
  return static_cast<uint16_t>(sign | ((magnitude - kExponentShift) >> 13));
}

uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > kFloatInfinity)  // NaN: rounding could turn it into infinity
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

ElementCounts CountElements(Dtype dtype, std::span<const std::byte> elements) {
  switch (dtype) {
    case Dtype::kFloat32:
      return {.non_finite = CountExponentOnes<uint32_t>(elements, kFloatInfinity)};
    case Dtype::kFloat16:
      return {.non_finite = CountExponentOnes<uint16_t>(elements, kHalfInfinity)};
    case Dtype::kBfloat16:
      return {.non_finite = CountExponentOnes<uint16_t>(elements, kBfloatInfinity)};
  }
  return {};
}

ElementCounts ConvertElements(Dtype from, std::span<const std::byte> in, Dtype to,
                              std::span<std::byte> out) {
  HPS_CHECK(CanConvert(from, to));
  HPS_CHECK(out.size() / ElementBytes(to) >= in.size() / ElementBytes(from));
  if (from == to) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
  } else if (to == Dtype::kFloat16) {
    return Narrow<FloatToHalf, kHalfInfinity>(in, out);
  } else if (to == Dtype::kBfloat16) {
    return Narrow<FloatToBfloat16, kBfloatInfinity>(in, out);
  } else {
    ConvertToFloat32(from, in.data(), in.size() / ElementBytes(from), out.data());
  }
  return CountElements(from, in);
}

absl::StatusOr<std::vector<std::byte>> ConvertChangedRows(std::span<const std::byte> rows,
                                                          Dtype to) {
  std::vector<std::byte> converted(rows.size() / sizeof(float) * ElementBytes(to));
  const ElementCounts counts = ConvertElements(Dtype::kFloat32, rows, to, converted);
  if (counts.overflowed == 0) return converted;
  return absl::InvalidArgumentError(
      absl::StrCat(counts.overflowed,
                   counts.overflowed == 1 ? " element of the rows is" : " elements of the rows are",
                   " too large for ", std::string(DtypeName(to))));
}

}  // namespace hps
