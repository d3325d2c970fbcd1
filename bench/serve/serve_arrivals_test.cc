#include "bench/serve/serve_arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hps::bench {
namespace {

using std::chrono::nanoseconds;

std::vector<nanoseconds> All(double per_second, double seconds, uint64_t seed) {
  PoissonArrivals arrivals(per_second, seconds, seed);
  std::vector<nanoseconds> all;
  while (const std::optional<nanoseconds> next = arrivals.Next()) all.push_back(*next);
  return all;
}

TEST(PoissonArrivalsTest, TheSeedDecides) {
  EXPECT_EQ(All(1000, 2, 7), All(1000, 2, 7));
  EXPECT_NE(All(1000, 2, 7), All(1000, 2, 8));
}

TEST(PoissonArrivalsTest, ComeInOrderAndEndInTime) {
  const std::vector<nanoseconds> all = All(100'000, 1, 1);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1], all[i]);
  EXPECT_GE(all.front(), nanoseconds(0));
  EXPECT_LT(all.back(), std::chrono::seconds(1));
}

TEST(PoissonArrivalsTest, NoneComesInNoTime) { EXPECT_TRUE(All(1000, 0, 1).empty()); }

// A schedule of equal gaps, or one of bursts, has the same mean and another variance.
TEST(PoissonArrivalsTest, CountsAndGapsAreThoseOfAPoissonProcess) {
  constexpr double kPerSecond = 10'000;
  constexpr double kSeconds = 20;
  const std::vector<nanoseconds> all = All(kPerSecond, kSeconds, 3);
  const auto count = static_cast<double>(all.size());
  // Six standard deviations.
  EXPECT_NEAR(count, kPerSecond * kSeconds, 6 * std::sqrt(kPerSecond * kSeconds));
  double sum = 0;
  double squares = 0;
  double long_gaps = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    const double gap = std::chrono::duration<double>(all[i] - all[i - 1]).count() * kPerSecond;
    sum += gap;
    squares += gap * gap;
    if (gap > 3) ++long_gaps;
  }
  const double mean = sum / count;
  EXPECT_NEAR(mean, 1, 0.02);
  EXPECT_NEAR(squares / count - mean * mean, 1, 0.05);
  EXPECT_NEAR(long_gaps / count, std::exp(-3), 0.004);
}

}  // namespace
}  // namespace hps::bench
