#include "bench/measure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace hps::bench {
namespace {

TEST(MeasureTest, QuantileIsTheNearestRank) {
  std::vector<double> values;
  EXPECT_EQ(Quantile(values, 0.5), 0);
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Quantile(values, 0), 1);
  EXPECT_EQ(Median(values), 50);
  EXPECT_EQ(Quantile(values, 0.99), 99);
  EXPECT_EQ(Quantile(values, 1), 100);
  std::vector<double> one = {7};
  EXPECT_EQ(Quantile(one, 0.01), 7);
  EXPECT_EQ(Quantile(one, 0.99), 7);
}

TEST(MeasureTest, RunsEveryThreadOnce) {
  std::vector<std::atomic<int>> runs(3);
  EXPECT_GT(RunOnThreads(runs.size(), [&](size_t i) { ++runs[i]; }), 0);
  for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace hps::bench
