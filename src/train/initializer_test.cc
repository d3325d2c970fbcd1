#include "train/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace hps {
namespace {

std::vector<float> RowOf(const Initializer& initializer, Key key, size_t dim) {
  std::vector<float> row(dim);
  InitializeRow(initializer, key, row);
  return row;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Initializer Normal(double mean, double deviation, uint64_t seed) {
  return {.kind = InitializerKind::kNormal,
          .low = -kInfinity,
          .high = kInfinity,
          .seed = seed,
          .mean = mean,
          .deviation = deviation};
}

// Cut at two deviations from the mean.
Initializer Truncated(double mean, double deviation, uint64_t seed) {
  return {.kind = InitializerKind::kNormal,
          .low = static_cast<float>(mean - 2 * deviation),
          .high = static_cast<float>(mean + 2 * deviation),
          .seed = seed,
          .mean = mean,
          .deviation = deviation,
          .probability_low = 0x1.74bcf82c9d8p-6,
          .probability_high = 0x1.f45a183e9b2p-1};
}

TEST(Initializer, DependsOnKeyAndSeedOnly) {
  for (const auto& make :
       {+[](uint64_t seed) { return Initializer{.low = -1, .high = 1, .seed = seed}; },
        +[](uint64_t seed) { return Normal(0, 1, seed); },
        +[](uint64_t seed) { return Truncated(0, 1, seed); }}) {
    EXPECT_EQ(RowOf(make(1), -1, 33), RowOf(make(1), -1, 33));
    EXPECT_NE(RowOf(make(1), -1, 33), RowOf(make(1), 0, 33));
    EXPECT_NE(RowOf(make(1), -1, 33), RowOf(make(2), -1, 33));
  }
}

// A machine that gives other bits would begin with other rows. The values were computed in Python,
// with the inverse normal distribution of its module `statistics`.
TEST(Initializer, HasTheSameBitsOnEveryMachine) {
  EXPECT_EQ(RowOf({.low = -2, .high = 1, .seed = 7}, -1, 3),
            (std::vector{-0x1.3a572ap+0F, -0x1.8b351cp+0F, -0x1.001a58p-1F}));
  EXPECT_EQ(RowOf(Normal(0, 1, 7), -1, 3),
            (std::vector{-0x1.4d8e74p-1F, -0x1.070f82p+0F, -0x1.600262p-13F}));
  EXPECT_EQ(RowOf(Normal(0, 1, 7), std::numeric_limits<Key>::max(), 3),
            (std::vector{-0x1.af8282p+0F, -0x1.f337ep-1F, -0x1.4f30eep+0F}));
  EXPECT_EQ(RowOf(Truncated(1, 0.5, 1), 5, 4),
            (std::vector{0x1.a02478p+0F, 0x1.7ac61ap-1F, 0x1.5b215p+0F, 0x1.7abd66p-1F}));
}

struct Moments {
  double mean = 0;
  double variance = 0;
  double kurtosis = 0;
  float least = kInfinity;
  float largest = -kInfinity;
};

Moments MomentsOf(const Initializer& initializer) {
  constexpr size_t kRows = 20'000;
  constexpr size_t kDim = 33;
  std::vector<float> all;
  for (size_t key = 0; key < kRows; ++key) {
    const std::vector<float> row = RowOf(initializer, static_cast<Key>(key), kDim);
    all.insert(all.end(), row.begin(), row.end());
  }
  Moments moments;
  const auto count = static_cast<double>(all.size());
  for (const float value : all) {
    moments.mean += value / count;
    moments.least = std::min(moments.least, value);
    moments.largest = std::max(moments.largest, value);
  }
  double fourth = 0;
  for (const float value : all) {
    moments.variance += std::pow(value - moments.mean, 2) / count;
    fourth += std::pow(value - moments.mean, 4) / count;
  }
  moments.kurtosis = fourth / std::pow(moments.variance, 2);
  return moments;
}

TEST(Initializer, IsNormal) {
  const Moments moments = MomentsOf(Normal(-1, 0.5, 3));
  EXPECT_NEAR(moments.mean, -1, 0.003);
  EXPECT_NEAR(moments.variance, 0.25, 0.002);
  EXPECT_NEAR(moments.kurtosis, 3, 0.03);
  EXPECT_LT(moments.least, -3);
  EXPECT_GT(moments.largest, 1);
}

TEST(Initializer, IsNormalWithinItsBounds) {
  const Moments moments = MomentsOf(Truncated(1, 0.5, 3));
  EXPECT_NEAR(moments.mean, 1, 0.003);
  EXPECT_NEAR(moments.variance, 0.25 * 0.7737413, 0.002);
  EXPECT_NEAR(moments.kurtosis, 2.36, 0.03);
  EXPECT_GE(moments.least, 0);
  EXPECT_LE(moments.largest, 2);
  EXPECT_LT(moments.least, 0.001);
  EXPECT_GT(moments.largest, 1.999);
}

TEST(Initializer, ADeviationOfZeroIsAConstant) {
  EXPECT_EQ(RowOf(Normal(0.5, 0, 1), 7, 3), std::vector<float>(3, 0.5F));
}

TEST(Initializer, IsUniformInItsRange) {
  const Initializer initializer{.low = -2, .high = 1, .seed = 3};
  double sum = 0;
  double squares = 0;
  constexpr size_t kRows = 1000;
  constexpr size_t kDim = 31;
  for (size_t key = 0; key < kRows; ++key) {
    for (const float value : RowOf(initializer, static_cast<Key>(key), kDim)) {
      ASSERT_GE(value, -2);
      ASSERT_LT(value, 1);
      sum += value;
      squares += double{value} * value;
    }
  }
  const double count = kRows * kDim;
  EXPECT_NEAR(sum / count, -0.5, 0.02);
  EXPECT_NEAR(squares / count - 0.25, 0.75, 0.02);  // variance: width^2 / 12
}

TEST(Initializer, ARangeOfOneValueIsAConstant) {
  EXPECT_EQ(RowOf({.low = 0.5F, .high = 0.5F}, 7, 3), std::vector<float>(3, 0.5F));
}

TEST(Initializer, RefusesWhatIsNoRange) {
  EXPECT_FALSE(ValidateInitializer({.low = 1, .high = 0}).ok());
  EXPECT_FALSE(
      ValidateInitializer({.low = 0, .high = std::numeric_limits<float>::infinity()}).ok());
  EXPECT_TRUE(ValidateInitializer({.low = 0, .high = 0}).ok());
}

TEST(Initializer, RefusesWhatIsNoNormalDistribution) {
  EXPECT_TRUE(ValidateInitializer(Normal(0, 1, 0)).ok());
  EXPECT_TRUE(ValidateInitializer(Truncated(0, 1, 0)).ok());
  const double nan = std::nan("");
  for (const auto& [mean, deviation] :
       {std::pair{nan, 1.0}, {0.0, nan}, {0.0, -1.0}, {1e39, 1.0}, {0.0, 1e38}})
    EXPECT_FALSE(ValidateInitializer(Normal(mean, deviation, 0)).ok());
  std::vector<Initializer> bad(5, Truncated(0, 1, 0));
  bad[0].low = 3;
  bad[1].high = std::nanf("");
  bad[2].probability_low = -0.1;
  bad[3].probability_high = bad[3].probability_low;
  bad[4].probability_high = 1.1;
  for (const Initializer& initializer : bad) EXPECT_FALSE(ValidateInitializer(initializer).ok());
}

}  // namespace
}  // namespace hps
