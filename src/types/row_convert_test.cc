#include "types/row_convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace hps {
namespace {

// The value of binary16 bits by the definition of the format, with library arithmetic only.
double Float16Value(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31 && fraction == 0) return sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::vector<uint32_t> Convert(Dtype dtype, const std::vector<uint16_t>& from) {
  std::vector<uint32_t> to(from.size());
  ConvertToFloat32(dtype, std::as_bytes(std::span(from)).data(), from.size(),
                   std::as_writable_bytes(std::span(to)).data());
  return to;
}

std::vector<uint16_t> AllValues() {
  std::vector<uint16_t> values(size_t{1} << 16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
  return values;
}

TEST(RowConvertTest, EveryFloat16IsExact) {
  const std::vector<uint16_t> from = AllValues();
  const std::vector<uint32_t> to = Convert(Dtype::kFloat16, from);
  for (size_t i = 0; i < from.size(); ++i) {
    const uint32_t fraction = from[i] & 0x3ff;
    if ((from[i] & 0x7c00) == 0x7c00 && fraction != 0) {  // NaN: sign, quiet bit and payload stay
      ASSERT_EQ(to[i], (uint32_t{from[i]} & 0x8000) << 16 | 0x7f800000 | fraction << 13) << i;
      continue;
    }
    const auto value = std::bit_cast<float>(to[i]);
    ASSERT_EQ(static_cast<double>(value), Float16Value(from[i])) << i;
    ASSERT_EQ(std::signbit(value), (from[i] & 0x8000) != 0) << i;
  }
}

TEST(RowConvertTest, EveryBfloat16IsTheUpperHalfOfItsFloat32) {
  const std::vector<uint16_t> from = AllValues();
  const std::vector<uint32_t> to = Convert(Dtype::kBfloat16, from);
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i], uint32_t{from[i]} << 16) << i;
}

TEST(RowConvertTest, RowsAreWidenedWhereTheyLie) {
  const std::vector<uint16_t> values = AllValues();
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const size_t count : {1, 3, 64, 65536}) {
      const std::vector<uint16_t> from(values.begin(),
                                       values.begin() + static_cast<std::ptrdiff_t>(count));
      std::vector<std::byte> row(1 + 4 * count);
      std::memcpy(row.data() + 1, from.data(), 2 * count);
      ConvertToFloat32InPlace(dtype, count, row.data() + 1);
      const std::vector<uint32_t> expected = Convert(dtype, from);
      ASSERT_EQ(std::memcmp(row.data() + 1, expected.data(), 4 * count), 0) << count;
    }
  }
}

TEST(RowConvertTest, AnyLengthAndAlignment) {
  for (size_t count : {0, 1, 31, 32, 33}) {
    for (size_t shift : {0, 1, 3}) {
      std::vector<std::byte> from(count * 2 + shift, std::byte{0x3c});
      std::vector<std::byte> to(count * 4 + shift + 1, std::byte{0xee});
      ConvertToFloat32(Dtype::kFloat16, from.data() + shift, count, to.data() + shift);
      for (size_t i = 0; i < count; ++i) {
        float value = 0;
        std::memcpy(&value, to.data() + shift + i * 4, sizeof(value));
        EXPECT_EQ(static_cast<double>(value), Float16Value(0x3c3c));
      }
      EXPECT_EQ(to.back(), std::byte{0xee}) << "wrote beyond the end";
    }
  }
}

TEST(RowConvertTest, Float32IsCopied) {
  const std::vector<float> from = {1.5F, -0.0F, 3e38F};
  std::vector<float> to(from.size());
  ConvertToFloat32(Dtype::kFloat32, std::as_bytes(std::span(from)).data(), from.size(),
                   std::as_writable_bytes(std::span(to)).data());
  EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace hps
