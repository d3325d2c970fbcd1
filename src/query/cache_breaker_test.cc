#include "query/cache_breaker.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr Duration kTick{1};

TEST(CacheBreakerTest, LetsOneCallTryADeviceThatHungNowAndThen) {
  CacheBreaker breaker;
  EXPECT_TRUE(breaker.Admits(kNow) && breaker.Admits(kNow));
  breaker.NoteFailure(kNow);
  EXPECT_FALSE(breaker.Admits(kNow));
  EXPECT_FALSE(breaker.Admits(kNow + CacheBreaker::kRest - kTick));
  EXPECT_TRUE(breaker.Admits(kNow + CacheBreaker::kRest));
  EXPECT_FALSE(breaker.Admits(kNow + CacheBreaker::kRest)) << "another call tries";
  EXPECT_FALSE(breaker.Admits(kNow + 2 * CacheBreaker::kRest - kTick));
  EXPECT_TRUE(breaker.Admits(kNow + 2 * CacheBreaker::kRest)) << "that call came to nothing";
  breaker.NoteAnswer();
  EXPECT_TRUE(breaker.Admits(kNow) && breaker.Admits(kNow));
}

}  // namespace
}  // namespace hps
