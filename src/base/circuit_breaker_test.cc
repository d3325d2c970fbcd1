#include "base/circuit_breaker.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr Duration kTick{1};

TEST(CircuitBreakerTest, LetsOneCallTryADeviceThatHungNowAndThen) {
  CircuitBreaker breaker;
  EXPECT_TRUE(breaker.Admits(kNow) && breaker.Admits(kNow));
  breaker.NoteFailure(kNow);
  EXPECT_FALSE(breaker.Admits(kNow));
  EXPECT_FALSE(breaker.Admits(kNow + CircuitBreaker::kRest - kTick));
  EXPECT_TRUE(breaker.Admits(kNow + CircuitBreaker::kRest));
  EXPECT_FALSE(breaker.Admits(kNow + CircuitBreaker::kRest)) << "another call tries";
  EXPECT_FALSE(breaker.Admits(kNow + 2 * CircuitBreaker::kRest - kTick));
  EXPECT_TRUE(breaker.Admits(kNow + 2 * CircuitBreaker::kRest)) << "that call came to nothing";
  breaker.NoteAnswer();
  EXPECT_TRUE(breaker.Admits(kNow) && breaker.Admits(kNow));
}

}  // namespace
}  // namespace hps
