#include "types/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "types/row_convert.h"

namespace hps {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float HalfToFloat(uint16_t half) { return std::bit_cast<float>(Float16ToFloat32Bits(half)); }
float Bfloat16ToFloat(uint16_t bfloat) {
  return std::bit_cast<float>(Bfloat16ToFloat32Bits(bfloat));
}

TEST(ElementsTest, EveryHalfAndBfloatConvertsToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const float half = HalfToFloat(value);
    const float bfloat = Bfloat16ToFloat(value);
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(half)))) << bits;
    } else {
      EXPECT_EQ(FloatToHalf(half), value);
    }
    if (std::isnan(bfloat)) {
      EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(bfloat)))) << bits;
    } else {
      EXPECT_EQ(FloatToBfloat16(bfloat), value);
    }
  }
}

TEST(ElementsTest, KnownHalves) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0F);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0F);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0F);
  EXPECT_EQ(HalfToFloat(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(HalfToFloat(0x0400), std::ldexp(1.0F, -14));
  EXPECT_EQ(HalfToFloat(0x7c00), kInfinity);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(Bfloat16ToFloat(0x3f80), 1.0F);
  EXPECT_EQ(Bfloat16ToFloat(0xc049), -3.140625F);
}

// Between any two neighbours: values below the middle round down, values above it up, the middle to
// even.
template <typename Narrow, typename Widen>
void CheckRounding(Narrow narrow, Widen widen, uint16_t infinity) {
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle = (widen(low) / 2) + (widen(high) / 2);
    if (middle <= widen(low) || middle >= widen(high)) continue;  // not representable as float
    for (const float sign : {1.0F, -1.0F}) {
      const uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(narrow(sign * middle), (bits % 2 == 0 ? low : high) | sign_bit) << bits;
      ASSERT_EQ(narrow(sign * std::nextafter(middle, 0.0F)), low | sign_bit) << bits;
      ASSERT_EQ(narrow(sign * std::nextafter(middle, kInfinity)), high | sign_bit) << bits;
    }
  }
}

TEST(ElementsTest, HalvesRoundToNearestTiesToEven) {
  CheckRounding(FloatToHalf, HalfToFloat, 0x7c00);
}
TEST(ElementsTest, BfloatsRoundToNearestTiesToEven) {
  CheckRounding(FloatToBfloat16, Bfloat16ToFloat, 0x7f80);
}

TEST(ElementsTest, TooLargeBecomesInfinite) {
  EXPECT_EQ(FloatToHalf(65519.996F), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30F), 0xfc00);
  EXPECT_EQ(FloatToBfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToHalf(1e-30F), 0);
}

TEST(ElementsTest, CountsWhatIsNotFiniteAndWhatOverflows) {
  const std::vector<float> values = {1, kInfinity, -kInfinity, std::nanf(""), 1e6F, -7e4F, 0};
  const auto in = std::as_bytes(std::span(values));
  EXPECT_EQ(CountElements(Dtype::kFloat32, in).non_finite, 3U);
  std::vector<std::byte> out(in.size());
  const ElementCounts half = ConvertElements(Dtype::kFloat32, in, Dtype::kFloat16, out);
  EXPECT_EQ(half.non_finite, 3U);
  EXPECT_EQ(half.overflowed, 2U);
  const auto halves = std::span<const std::byte>(out).first(values.size() * 2);
  EXPECT_EQ(CountElements(Dtype::kFloat16, halves).non_finite, 5U);
  const ElementCounts bfloat = ConvertElements(Dtype::kFloat32, in, Dtype::kBfloat16, out);
  EXPECT_EQ(bfloat.non_finite, 3U);
  EXPECT_EQ(bfloat.overflowed, 0U);
  EXPECT_EQ(CountElements(Dtype::kBfloat16, halves).non_finite, 3U);
}

TEST(ElementsTest, ChangedRowsKeepWhatIsNotFiniteButDoNotBecomeInfinite) {
  const std::vector<float> values = {1, 0.1F, kInfinity, std::nanf("")};
  const auto rows = std::as_bytes(std::span(values));
  const auto halves = ConvertChangedRows(rows, Dtype::kFloat16);
  ASSERT_TRUE(halves.ok());
  ASSERT_EQ(halves->size(), 8U);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(LoadLittleEndian<uint16_t>(halves->data() + 2 * i), FloatToHalf(values[i]));
  const std::vector<float> large = {1e6F, 65519, -65520};
  EXPECT_EQ(ConvertChangedRows(std::as_bytes(std::span(large)), Dtype::kFloat16).status().message(),
            "2 elements of the rows are too large for float16");
  EXPECT_TRUE(ConvertChangedRows(std::as_bytes(std::span(large)), Dtype::kBfloat16).ok());
}

TEST(ElementsTest, ConvertsEveryAllowedPair) {
  std::mt19937 random(1);
  for (const size_t count : {0, 1, 31, 32, 33, 4097}) {
    std::vector<uint16_t> narrow(count);
    for (uint16_t& value : narrow) value = static_cast<uint16_t>(random() & 0x3fff);
    for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
      std::vector<float> wide(count);
      std::vector<uint16_t> back(count);
      ConvertElements(dtype, std::as_bytes(std::span(narrow)), Dtype::kFloat32,
                      std::as_writable_bytes(std::span(wide)));
      ConvertElements(Dtype::kFloat32, std::as_bytes(std::span(wide)), dtype,
                      std::as_writable_bytes(std::span(back)));
      EXPECT_EQ(back, narrow);
      ConvertElements(dtype, std::as_bytes(std::span(narrow)), dtype,
                      std::as_writable_bytes(std::span(back)));
      EXPECT_EQ(back, narrow);
    }
  }
  EXPECT_FALSE(CanConvert(Dtype::kFloat16, Dtype::kBfloat16));
  EXPECT_TRUE(CanConvert(Dtype::kFloat16, Dtype::kFloat32));
}

}  // namespace
}  // namespace hps
