#include "update/rate_limiter.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(RateLimiter, WithoutALimitNothingWaits) {
  RateLimiter limiter(0);
  limiter.Take(UINT64_MAX, kStart);
  EXPECT_LE(limiter.ready(), kStart);
}

TEST(RateLimiter, KeepsTheAverage) {
  RateLimiter limiter(1000);
  TimePoint now = kStart;
  limiter.Take(1, now);  // a second is unused at first
  EXPECT_LE(limiter.ready(), now);
  uint64_t passed = 1;
  for (int i = 0; i < 100; ++i) {
    now = std::max(now, limiter.ready());
    limiter.Take(300, now);
    passed += 300;
  }
  const double seconds = std::chrono::duration<double>(now - kStart).count();
  EXPECT_NEAR(static_cast<double>(passed - 300) / 1000, seconds + 1, 0.4);
}

TEST(RateLimiter, ALargeAmountIsPaidBack) {
  RateLimiter limiter(10);
  limiter.Take(110, kStart);
  EXPECT_EQ(limiter.ready(), kStart + std::chrono::seconds(10));
}

TEST(RateLimiter, UnusedTimeCountsForASecond) {
  RateLimiter limiter(10);
  limiter.Take(10, kStart);
  const TimePoint later = kStart + std::chrono::hours(1);
  limiter.Take(20, later);
  EXPECT_EQ(limiter.ready(), later + std::chrono::seconds(1));
}

}  // namespace
}  // namespace hps
