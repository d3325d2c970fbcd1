#include "base/log_limiter.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

constexpr const char* kFile = "file.cc";

TEST(LogLimiterTest, ABurstThenOneLineASecondWithWhatWasLeftOut) {
  LogLimiter limiter;
  TimePoint now{};
  for (uint32_t i = 0; i < LogLimiter::kBurstLines; ++i) {
    EXPECT_EQ(limiter.Admit(kFile, 1, now), 0U) << i;
  }
  for (int i = 0; i < 7; ++i) EXPECT_EQ(limiter.Admit(kFile, 1, now), std::nullopt);
  now += LogLimiter::kLineEvery;
  EXPECT_EQ(limiter.Admit(kFile, 1, now), 7U);
  EXPECT_EQ(limiter.Admit(kFile, 1, now), std::nullopt);
  now += LogLimiter::kLineEvery;
  EXPECT_EQ(limiter.Admit(kFile, 1, now), 1U);
}

// A place that loops must not silence the others.
TEST(LogLimiterTest, PlacesAreLimitedEachByItself) {
  LogLimiter limiter;
  const TimePoint now{};
  while (limiter.Admit(kFile, 1, now).has_value()) {
  }
  EXPECT_EQ(limiter.Admit(kFile, 2, now), 0U);
  EXPECT_EQ(limiter.Admit("other.cc", 1, now), 0U);
}

TEST(LogLimiterTest, APlaceThatWasQuietHasAWholeBurstAgain) {
  LogLimiter limiter;
  TimePoint now{};
  while (limiter.Admit(kFile, 1, now).has_value()) {
  }
  now += 1000 * LogLimiter::kLineEvery;
  EXPECT_EQ(limiter.Admit(kFile, 1, now), 1U);
  for (uint32_t i = 1; i < LogLimiter::kBurstLines; ++i) {
    EXPECT_EQ(limiter.Admit(kFile, 1, now), 0U) << i;
  }
  EXPECT_EQ(limiter.Admit(kFile, 1, now), std::nullopt);
}

}  // namespace
}  // namespace hps
