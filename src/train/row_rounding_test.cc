#include "train/row_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "hps/types.h"
#include "train/initializer.h"
#include "types/row_convert.h"

namespace hps {
namespace {

constexpr std::array kDtypesOf16Bits = {Dtype::kFloat16, Dtype::kBfloat16};
constexpr uint32_t kRandomEnd = 1 << 16;

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

// Every value that is not negative and finite, ascending: the place of a value is its 16 bits.
const std::vector<float>& ValuesOf(Dtype dtype) {
  static const auto tables = [] {
    std::array<std::vector<float>, 2> made;
    for (uint16_t bits = 0; bits < 0x7c00; ++bits)
      made[0].push_back(std::bit_cast<float>(Float16ToFloat32Bits(bits)));
    for (uint32_t bits = 0; bits < 0x7f80; ++bits)
      made[1].push_back(std::bit_cast<float>(bits << 16));
    return made;
  }();
  return tables[dtype == Dtype::kFloat16 ? 0 : 1];
}

// The values next to a finite one. The same, if it is a value of the type, or beyond the largest.
struct Neighbours {
  float below = 0;  // nearer to zero
  float above = 0;
  float nearest = 0;
};

// By search among all values of the type, in float64: distances are exact there.
Neighbours NeighboursOf(float value, Dtype dtype) {
  const std::vector<float>& values = ValuesOf(dtype);
  const float magnitude = std::fabs(value);
  const size_t above = static_cast<size_t>(
      std::lower_bound(values.begin(), values.end(), magnitude) - values.begin());
  const auto with_sign = [value](float found) { return std::copysign(found, value); };
  if (above == values.size()) {
    const float largest = with_sign(values.back());
    return {largest, largest, largest};
  }
  if (values[above] == magnitude) return {value, value, value};
  const size_t below = above - 1;
  const double down = double{magnitude} - values[below];
  const double up = double{values[above]} - magnitude;
  const bool is_tie = down == up;
  const size_t nearest = is_tie ? (below % 2 == 0 ? below : above) : (down < up ? below : above);
  return {with_sign(values[below]), with_sign(values[above]), with_sign(values[nearest])};
}

// With both signs: each value, each middle of two adjacent ones, and their neighbours in float32;
// numbers beyond the largest value; and numbers whose bits are all random.
std::vector<float> FiniteValues(Dtype dtype) {
  std::vector<float> all;
  const std::vector<float>& values = ValuesOf(dtype);
  const float largest = std::numeric_limits<float>::max();
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    const float next = i + 1 < values.size() ? values[i + 1] : value * 1.01F;
    const auto middle = static_cast<float>((double{value} + next) / 2);
    for (const float near : {value, middle})
      all.insert(all.end(), {near, std::nextafter(near, 0.0F), std::nextafter(near, largest)});
  }
  for (const float beyond : {65504.0F, 65519.99F, 65520.0F, 1e5F, 0x1.fefffep127F, largest})
    all.push_back(beyond);
  std::mt19937 random(3);
  while (all.size() % 100'000 != 0)
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(random()) >> 1));
  std::erase_if(all, [](float value) { return !std::isfinite(value); });
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) all.push_back(-all[i]);
  return all;
}

TEST(RowRounding, NearestIsNearestAndOfTwoTheEvenOne) {
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (const float value : FiniteValues(dtype)) {
      ASSERT_EQ(BitsOf(RoundedToNearest(value, dtype)), BitsOf(NeighboursOf(value, dtype).nearest))
          << DtypeName(dtype) << " " << value;
    }
  }
}

// The reference, by values that are known from the definitions of the types.
TEST(RowRounding, NearestHasKnownValues) {
  const auto bfloat16 = [](float value) { return RoundedToNearest(value, Dtype::kBfloat16); };
  EXPECT_EQ(bfloat16(0x1.01p0F), 1);  // ties
  EXPECT_EQ(bfloat16(0x1.03p0F), 0x1.04p0F);
  EXPECT_EQ(bfloat16(-0x1.010002p0F), -0x1.02p0F);
  EXPECT_EQ(bfloat16(0x1.8p-134F), 0x1p-133F);  // 0.75 of the least value
  EXPECT_EQ(BitsOf(bfloat16(-0x1p-134F)), 0x80000000);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()), 0x1.fep127F);
  const auto float16 = [](float value) { return RoundedToNearest(value, Dtype::kFloat16); };
  EXPECT_EQ(float16(0x1.002p0F), 1);
  EXPECT_EQ(float16(0x1.006p0F), 0x1.008p0F);
  EXPECT_EQ(float16(-0x1.002002p0F), -0x1.004p0F);
  EXPECT_EQ(float16(0x1.8p-24F), 0x1p-23F);  // between 1 and 2 of the least value
  EXPECT_EQ(float16(0x1.4p-23F), 0x1p-23F);  // between 2 and 3
  EXPECT_EQ(BitsOf(float16(-0x1p-25F)), 0x80000000);
  EXPECT_EQ(float16(0x1.ffep-15F), 0x1p-14F);  // subnormals end
  EXPECT_EQ(float16(65520), 65504);
  EXPECT_EQ(float16(-1e30F), -65504);
}

// Values that the type has, infinities and NaN among them, are never changed.
TEST(RowRounding, EveryValueOfTheTypeStaysWhatItIs) {
  std::mt19937 random(4);
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (uint32_t bits = 0; bits < kRandomEnd; ++bits) {
      const auto value = std::bit_cast<float>(
          dtype == Dtype::kFloat16 ? Float16ToFloat32Bits(static_cast<uint16_t>(bits))
                                   : Bfloat16ToFloat32Bits(static_cast<uint16_t>(bits)));
      const float nearest = RoundedToNearest(value, dtype);
      for (const uint32_t any :
           {0U, static_cast<uint32_t>(random()) % kRandomEnd, kRandomEnd - 1}) {
        const float rounded = RoundedAtRandom(value, dtype, any);
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(nearest) && std::isnan(rounded)) << bits;
          ASSERT_EQ(std::signbit(nearest), std::signbit(value)) << bits;
          ASSERT_EQ(std::signbit(rounded), std::signbit(value)) << bits;
          // Still NaN, and not infinity, when bfloat16 cuts off the lower 16 bits.
          ASSERT_NE(BitsOf(nearest) & 0x007f0000, 0U) << bits;
          continue;
        }
        ASSERT_EQ(BitsOf(nearest), BitsOf(value)) << DtypeName(dtype) << " " << bits;
        ASSERT_EQ(BitsOf(rounded), BitsOf(value)) << DtypeName(dtype) << " " << bits << " " << any;
      }
    }
  }
}

// A NaN whose upper bits would make an infinity.
TEST(RowRounding, NanStaysNan) {
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (const uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffffffffU}) {
      const auto value = std::bit_cast<float>(bits);
      for (const float found : {RoundedToNearest(value, dtype), RoundedAtRandom(value, dtype, 0),
                                RoundedAtRandom(value, dtype, kRandomEnd - 1)}) {
        EXPECT_TRUE(std::isnan(found));
        EXPECT_EQ(BitsOf(found) & 0x1fff, 0U);  // neither type has these bits
        EXPECT_EQ(std::signbit(found), std::signbit(value));
      }
    }
  }
}

TEST(RowRounding, AtRandomGivesOneOfTheTwoNextValues) {
  std::mt19937 random(5);
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (const float value : FiniteValues(dtype)) {
      const Neighbours next = NeighboursOf(value, dtype);
      ASSERT_EQ(BitsOf(RoundedAtRandom(value, dtype, 0)), BitsOf(next.below)) << value;
      const uint32_t found =
          BitsOf(RoundedAtRandom(value, dtype, static_cast<uint32_t>(random()) % kRandomEnd));
      ASSERT_TRUE(found == BitsOf(next.below) || found == BitsOf(next.above))
          << DtypeName(dtype) << " " << value;
    }
  }
}

// Of all 2^16 random numbers, as many give the upper value as its share of the distance is.
TEST(RowRounding, AtRandomGivesEachInProportion) {
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (const float value : {0.3F, -1.7F, 1e-3F, 3e-5F, -4e-7F, 1e-9F, 1.00001F, 65503.9F}) {
      const Neighbours next = NeighboursOf(value, dtype);
      uint32_t above = 0;
      for (uint32_t any = 0; any < kRandomEnd; ++any)
        above += RoundedAtRandom(value, dtype, any) == next.above ? 1 : 0;
      const double share = (double{value} - next.below) / (double{next.above} - next.below);
      // Exact for as many bits as are cut off; float16's subnormals may have more.
      EXPECT_EQ(above, std::floor(share * kRandomEnd)) << DtypeName(dtype) << " " << value;
    }
  }
}

// The mean of `count` roundings of each element, in deviations from the value.
double Deviations(float value, Dtype dtype, std::span<const float> rounded) {
  const Neighbours next = NeighboursOf(value, dtype);
  const double distance = double{next.above} - next.below;
  const double share = (double{value} - next.below) / distance;
  double sum = 0;
  for (const float each : rounded) sum += (double{each} - value) / distance;
  return sum / std::sqrt(share * (1 - share) * static_cast<double>(rounded.size()));
}

// A million roundings, of a row with each number of updates, or of rows with each key.
TEST(RowRounding, TheMeanIsTheValue) {
  constexpr size_t kRoundings = 1'000'000;
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (const float value : {0.3F, -1.7F, 1e-3F, 3e-5F, -4.4e-7F, 1.001F, 60000.1F}) {
      std::vector<float> by_updates(kRoundings, value);
      std::vector<float> by_key(kRoundings, value);
      for (size_t i = 0; i < kRoundings; i += 4) {
        const auto number = static_cast<uint32_t>(i / 4 + 1);
        RoundAtRandom(dtype, RoundingState(7, 11), number, std::span(by_updates).subspan(i, 4));
        RoundAtRandom(dtype, RoundingState(static_cast<Key>(number), 11), 1,
                      std::span(by_key).subspan(i, 4));
      }
      EXPECT_LT(std::fabs(Deviations(value, dtype, by_updates)), 4)
          << DtypeName(dtype) << " " << value;
      EXPECT_LT(std::fabs(Deviations(value, dtype, by_key)), 4) << DtypeName(dtype) << " " << value;
    }
  }
}

TEST(RowRounding, RandomBitsDifferByKeySeedUpdatesAndPlace) {
  std::set<uint64_t> found;
  size_t count = 0;
  for (const Key key : {Key{0}, Key{1}, Key{-1}, std::numeric_limits<Key>::max()}) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      const uint64_t state = RoundingState(key, seed);
      for (const uint32_t updates : {1U, 2U, 3U, 256U, 65536U, 0xffffffffU}) {
        for (uint32_t quad = 0; quad < 1024; quad += 31, ++count)
          found.insert(RoundingBits(state, updates, quad));
      }
      // Nor are they those of the first values, which begin where another seed's rounding does.
      for (size_t pair = 0; pair < 100; ++pair, ++count)
        found.insert(InitialBits(HashKey(key, seed), pair));
    }
  }
  EXPECT_EQ(found.size(), count);
}

// Elements take 16 bits each of their four's, the lowest first.
TEST(RowRounding, ARowNeedNotBeWholeFours) {
  for (const Dtype dtype : kDtypesOf16Bits) {
    for (const size_t dim : {0, 1, 3, 7, 130}) {
      std::vector<float> row(dim);
      InitializeRow({.low = -1, .high = 1, .seed = 2}, 9, row);
      const uint64_t state = RoundingState(9, 2);
      std::vector<float> expected;
      for (size_t i = 0; i < dim; ++i) {
        const uint64_t four = RoundingBits(state, 3, static_cast<uint32_t>(i / 4));
        expected.push_back(
            RoundedAtRandom(row[i], dtype, static_cast<uint32_t>(four >> (i % 4 * 16) & 0xffff)));
      }
      RoundAtRandom(dtype, state, 3, row);
      EXPECT_EQ(row, expected);
    }
  }
}

TEST(RowRounding, Float32IsLeftAsItIs) {
  const std::vector<float> row = {0.1F, -0.2F, 1e30F, 1e-30F, 0.3F};
  std::vector<float> rounded = row;
  RoundAtRandom(Dtype::kFloat32, RoundingState(1, 1), 1, rounded);
  EXPECT_EQ(rounded, row);
  RoundToNearest(Dtype::kFloat32, rounded);
  EXPECT_EQ(rounded, row);
}

// A machine with other bits would train other rows. The values were computed in Python: the hash by
// the specification of XXH64, the rounding in fractions, by search among all values of the type.
TEST(RowRounding, HasTheSameBitsOnEveryMachine) {
  EXPECT_EQ(RoundingBits(RoundingState(-1, 7), 1, 0), 0x2365f8b0a3a41a9bU);
  EXPECT_EQ(RoundingBits(RoundingState(-1, 7), 1, 1), 0xee8b095022efc070U);
  EXPECT_EQ(RoundingBits(RoundingState(0, 0), 1, 0), 0xa60afed7a00b9e32U);
  EXPECT_EQ(RoundingBits(RoundingState(std::numeric_limits<Key>::max(), ~uint64_t{0}),
                         std::numeric_limits<uint32_t>::max(), 1023),
            0x2a2d6c3d4d3239c1U);
  const auto rounded = [](Dtype dtype, uint32_t updates) {
    std::vector<float> row = {0.3F, -1.7F, 3e-7F, 100.1F, -0.0123F, 2.5e-6F, 7.77F};
    RoundAtRandom(dtype, RoundingState(-7, 5), updates, row);
    return row;
  };
  EXPECT_EQ(rounded(Dtype::kBfloat16, 1),
            (std::vector{0x1.34p-2F, -0x1.b4p+0F, 0x1.44p-22F, 0x1.90p+6F, -0x1.92p-7F, 0x1.50p-19F,
                         0x1.f2p+2F}));
  EXPECT_EQ(rounded(Dtype::kBfloat16, 2),
            (std::vector{0x1.34p-2F, -0x1.b2p+0F, 0x1.42p-22F, 0x1.90p+6F, -0x1.94p-7F, 0x1.50p-19F,
                         0x1.f0p+2F}));
  EXPECT_EQ(rounded(Dtype::kFloat16, 1),
            (std::vector{0x1.334p-2F, -0x1.b34p+0F, 0x1.4p-22F, 0x1.908p+6F, -0x1.93p-7F,
                         0x1.5p-19F, 0x1.f14p+2F}));
  EXPECT_EQ(rounded(Dtype::kFloat16, 2),
            (std::vector{0x1.334p-2F, -0x1.b34p+0F, 0x1.4p-22F, 0x1.904p+6F, -0x1.93p-7F,
                         0x1.5p-19F, 0x1.f14p+2F}));
}

}  // namespace
}  // namespace hps
