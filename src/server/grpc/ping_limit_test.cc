#include "server/grpc/ping_limit.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint(std::chrono::hours(5));

TEST(PingLimitTest, SomeMayComeSooner) {
  PingLimit limit;
  for (int i = 0; i <= PingLimit::kSoonerMax; ++i) EXPECT_TRUE(limit.Admit(kStart)) << i;
  EXPECT_FALSE(limit.Admit(kStart));
  EXPECT_FALSE(limit.Admit(kStart + seconds(9)));
  EXPECT_TRUE(limit.Admit(kStart + seconds(10)));
  EXPECT_FALSE(limit.Admit(kStart + seconds(10)));
  limit.Reset();
  for (int i = 0; i <= PingLimit::kSoonerMax; ++i) EXPECT_TRUE(limit.Admit(kStart + seconds(10)));
  EXPECT_FALSE(limit.Admit(kStart + seconds(10)));
}

// A client that pings every 10 s, over a network that delays every other ping.
TEST(PingLimitTest, APeriodThatIsKeptMayGoOnForEver) {
  PingLimit limit;
  TimePoint sent = kStart;
  for (int i = 0; i < 10'000; ++i, sent += PingLimit::kPeriod) {
    ASSERT_TRUE(limit.Admit(sent + milliseconds(i % 2 == 0 ? 400 : 0))) << i;
  }
}

TEST(PingLimitTest, APeriodThatIsShorterMayNot) {
  PingLimit limit;
  TimePoint sent = kStart;
  int admitted = 0;
  while (admitted < 1000 && limit.Admit(sent)) {
    sent += seconds(9);
    ++admitted;
  }
  EXPECT_GE(admitted, PingLimit::kSoonerMax + 1);
  EXPECT_LT(admitted, 30);
}

}  // namespace
}  // namespace hps::server
