#include "base/rate_limiter.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(RateLimiter, WithoutALimitNothingWaits) {
  RateLimiter limiter(0, seconds(1));
  EXPECT_EQ(limiter.Take(UINT64_MAX, kStart), kStart);
  EXPECT_LE(limiter.ready(), kStart);
}

TEST(RateLimiter, KeepsTheAverage) {
  RateLimiter limiter(1000, seconds(1));
  TimePoint now = kStart;
  limiter.Take(1, now);  // a second is unused at first
  EXPECT_LE(limiter.ready(), now);
  uint64_t passed = 1;
  for (int i = 0; i < 100; ++i) {
    now = std::max(now, limiter.ready());
    limiter.Take(300, now);
    passed += 300;
  }
  const double taken = std::chrono::duration<double>(now - kStart).count();
  EXPECT_NEAR(static_cast<double>(passed - 300) / 1000, taken + 1, 0.4);
}

TEST(RateLimiter, ALargeAmountIsPaidBack) {
  RateLimiter limiter(10, seconds(1));
  EXPECT_EQ(limiter.Take(110, kStart), kStart + seconds(10));
}

TEST(RateLimiter, UnusedTimeCountsUpToItsMaximum) {
  RateLimiter limiter(10, seconds(1));
  limiter.Take(10, kStart);
  const TimePoint later = kStart + std::chrono::hours(1);
  EXPECT_EQ(limiter.Take(20, later), later + seconds(1));
}

TEST(RateLimiter, WithoutUnusedTimeTheRateHoldsOverEveryInterval) {
  RateLimiter limiter(1000, Duration::zero());
  EXPECT_EQ(limiter.Take(500, kStart), kStart + milliseconds(500));
  // The amounts of a user that does not wait add up ...
  EXPECT_EQ(limiter.Take(250, kStart), kStart + milliseconds(750));
  // ... and a pause gives no right to a burst.
  const TimePoint later = kStart + seconds(60);
  EXPECT_EQ(limiter.Take(1, later), later + milliseconds(1));
}

TEST(RateLimiter, NoWaitIsLongerThanItsMaximum) {
  RateLimiter limiter(1, Duration::zero(), seconds(5));
  EXPECT_EQ(limiter.Take(UINT64_MAX, kStart), kStart + seconds(5));
  EXPECT_EQ(limiter.Take(UINT64_MAX, kStart), kStart + seconds(5));
  RateLimiter longest(1, Duration::zero());
  EXPECT_EQ(longest.Take(UINT64_MAX, kStart), kStart + RateLimiter::kLongestWait);
}

}  // namespace
}  // namespace hps
