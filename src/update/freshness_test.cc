#include "update/freshness.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "base/unix_time.h"

namespace hps {
namespace {

TEST(FreshnessTest, CountsByAge) {
  Freshness freshness;
  const int64_t now = UnixMicroseconds();
  const std::array<int64_t, 4> times = {now + 60'000'000, now - 3'000'000, now - 3'500'000'000, 0};
  freshness.Add(times);
  const FreshnessHistogram histogram = freshness.histogram();
  EXPECT_EQ(histogram.counts[0], 1u);   // from the future
  EXPECT_EQ(histogram.counts[12], 1u);  // 3 s is at most 4.096 s
  EXPECT_EQ(histogram.counts[20], 1u);  // more than 524 s
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0}), 3u);
  EXPECT_NEAR(histogram.seconds_sum, 3503, 5);
  EXPECT_DOUBLE_EQ(FreshnessHistogram::BoundSeconds(12), 4.096);
}

}  // namespace
}  // namespace hps
