#include "bench/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace hps::bench {
namespace {

using std::chrono::nanoseconds;

// Nearest rank, as the histogram says it.
double Exact(const std::vector<int64_t>& sorted, double quantile) {
  const auto count = static_cast<double>(sorted.size());
  const auto rank = static_cast<size_t>(std::clamp(std::ceil(quantile * count), 1.0, count));
  return static_cast<double>(sorted[rank - 1]) / 1e3;
}

TEST(LatencyHistogramTest, IsEmptyAtFirst) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.QuantileUs(0.99), 0);
  EXPECT_EQ(histogram.CountUpTo(nanoseconds(1'000'000)), 0u);
  EXPECT_TRUE(histogram.Points().empty());
}

TEST(LatencyHistogramTest, QuantilesAreThoseOfASortedList) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> spread(12, 3);  // from nanoseconds to minutes
    std::vector<int64_t> sorted;
    LatencyHistogram whole;
    LatencyHistogram half;
    for (int i = 0; i < 20'000; ++i) {
      sorted.push_back(static_cast<int64_t>(spread(random)));
      (i % 2 == 0 ? whole : half).Add(nanoseconds(sorted.back()));
    }
    whole.Add(half);
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(whole.count(), sorted.size());
    for (const double quantile : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const double exact = Exact(sorted, quantile);
      EXPECT_NEAR(whole.QuantileUs(quantile), exact, exact * 0.0041 + 0.0005) << quantile;
    }
  }
}

TEST(LatencyHistogramTest, TheShortestAreExactAndTheLongestAreKept) {
  LatencyHistogram histogram;
  for (const int64_t ns : {-5, 0, 1, 127}) histogram.Add(nanoseconds(ns));
  EXPECT_EQ(histogram.CountUpTo(nanoseconds(0)), 2u);
  EXPECT_EQ(histogram.CountUpTo(nanoseconds(1)), 3u);
  EXPECT_EQ(histogram.CountUpTo(nanoseconds(126)), 3u);
  EXPECT_DOUBLE_EQ(histogram.QuantileUs(1), 0.127);
  histogram.Add(nanoseconds::max());
  EXPECT_EQ(histogram.count(), 5u);
  EXPECT_NEAR(histogram.QuantileUs(1), std::ldexp(1.0, 40) / 1e3, 5e6);
}

TEST(LatencyHistogramTest, CountsUpToALimit) {
  LatencyHistogram histogram;
  for (int us = 1; us <= 1000; ++us) histogram.Add(std::chrono::microseconds(us));
  EXPECT_NEAR(static_cast<double>(histogram.CountUpTo(std::chrono::microseconds(500))), 500, 5);
  EXPECT_EQ(histogram.CountUpTo(std::chrono::seconds(1)), 1000u);
}

TEST(LatencyHistogramTest, PointsRiseFromTheShortestToTheLongest) {
  LatencyHistogram histogram;
  for (int us = 1; us <= 100'000; ++us) histogram.Add(std::chrono::microseconds(us));
  const auto points = histogram.Points();
  ASSERT_GE(points.size(), 30u);
  ASSERT_LE(points.size(), 60u);
  EXPECT_EQ(points.front().first, 0);
  EXPECT_EQ(points.back().first, 1);
  EXPECT_NEAR(points.back().second, 100'000, 500);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_LT(points[i - 1].first, points[i].first);
    EXPECT_LE(points[i - 1].second, points[i].second);
  }
}

}  // namespace
}  // namespace hps::bench
