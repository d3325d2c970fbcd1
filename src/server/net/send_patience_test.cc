#include "server/net/send_patience.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long a client is waited for that takes `bytes_per_second`.
Duration Patience(Duration write_timeout, uint64_t bytes_per_second) {
  const TimePoint begin{seconds(1000)};
  const auto taken = [&](TimePoint now) {
    const auto ms = std::chrono::duration_cast<milliseconds>(now - begin).count();
    return 7 + bytes_per_second * static_cast<uint64_t>(ms) / 1000;
  };
  SendPatience patience;
  TimePoint now = patience.Begin(begin, write_timeout, taken(begin));
  while (const auto next = patience.Extend(now, taken(now))) {
    EXPECT_GT(*next, now);
    now = *next;
  }
  return now - begin;
}

TEST(SendPatienceTest, AClientThatTakesNothingIsCutAfterTheTimeout) {
  for (const Duration timeout : {Duration(milliseconds(50)), Duration(seconds(5)),
                                 Duration(seconds(30)), Duration(seconds(33))}) {
    EXPECT_EQ(Patience(timeout, 0), timeout);
    EXPECT_EQ(Patience(timeout, 3'000), timeout);  // 15,000 bytes in five seconds
  }
}

TEST(SendPatienceTest, ASlowButSteadyClientHasTenTimesAsLong) {
  EXPECT_EQ(Patience(seconds(30), 3'400), seconds(300));
  EXPECT_EQ(Patience(seconds(33), 3'400), seconds(330)) << "the last period is a short one";
  EXPECT_EQ(Patience(seconds(33), 1 << 20), seconds(330));
}

TEST(SendPatienceTest, OnePeriodWithoutProgressBehindTheTimeoutEndsIt) {
  const TimePoint begin{seconds(1)};
  SendPatience patience;
  TimePoint now = patience.Begin(begin, seconds(10), 0);
  EXPECT_EQ(now, begin + seconds(5));
  now = *patience.Extend(now, 0);  // within the timeout it may pause
  EXPECT_EQ(now, begin + seconds(10));
  now = *patience.Extend(now, kSteadyBytes);
  EXPECT_EQ(now, begin + seconds(15));
  EXPECT_FALSE(patience.Extend(now, 2 * kSteadyBytes - 1).has_value());
}

}  // namespace
}  // namespace hps::server
