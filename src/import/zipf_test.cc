#include "import/zipf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hps {
namespace {

TEST(ZipfTest, FrequenciesFollowThePowerLaw) {
  constexpr uint64_t kSamples = 400'000;
  for (const double alpha : {0.0, 0.5, 1.0, 1.2, 3.0}) {
    constexpr uint64_t kCount = 50;
    const ZipfDistribution zipf(kCount, alpha);
    RandomStream random(1);
    std::vector<double> seen(kCount + 1, 0);
    for (uint64_t i = 0; i < kSamples; ++i) {
      const uint64_t rank = zipf.Sample(random);
      ASSERT_GE(rank, 1U);
      ASSERT_LE(rank, kCount);
      ++seen[rank];
    }
    double weight_sum = 0;
    for (uint64_t rank = 1; rank <= kCount; ++rank)
      weight_sum += std::pow(static_cast<double>(rank), -alpha);
    for (const uint64_t rank : {1, 2, 3, 10, 50}) {
      const double expected = kSamples * std::pow(static_cast<double>(rank), -alpha) / weight_sum;
      EXPECT_NEAR(seen[rank], expected, 5 * std::sqrt(expected) + 5) << alpha << " " << rank;
    }
  }
  const ZipfDistribution one(1, 1.2);
  RandomStream random(1);
  EXPECT_EQ(one.Sample(random), 1U);
}

// Counts far above what a table of probabilities could hold.
TEST(ZipfTest, HugeCountsStayInRange) {
  constexpr uint64_t kCount = uint64_t{1} << 40;
  const ZipfDistribution zipf(kCount, 1.0);
  RandomStream random(2);
  uint64_t largest = 0;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t rank = zipf.Sample(random);
    ASSERT_GE(rank, 1U);
    ASSERT_LE(rank, kCount);
    largest = std::max(largest, rank);
  }
  EXPECT_GT(largest, kCount / 1000);
}

}  // namespace
}  // namespace hps
