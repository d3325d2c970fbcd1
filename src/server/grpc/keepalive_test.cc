#include "server/grpc/keepalive.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

using Action = Keepalive::Action;

constexpr TimePoint kOpened{std::chrono::hours(1)};
constexpr Duration kTick = std::chrono::nanoseconds(1);

TEST(KeepaliveTest, PingsASilentClientOnceAndThenCloses) {
  Keepalive keepalive;
  keepalive.OnRead(kOpened);
  const TimePoint silent = kOpened + Keepalive::kTime;
  EXPECT_EQ(keepalive.deadline(), silent);
  EXPECT_EQ(keepalive.Check(silent - kTick), Action::kNone);
  EXPECT_EQ(keepalive.Check(silent), Action::kPing);
  const TimePoint gone = silent + Keepalive::kTimeout;
  EXPECT_EQ(keepalive.deadline(), gone);
  EXPECT_EQ(keepalive.Check(gone - kTick), Action::kNone);
  EXPECT_EQ(keepalive.Check(gone), Action::kClose);
}

TEST(KeepaliveTest, AnyInputAnswersThePing) {
  Keepalive keepalive;
  keepalive.OnRead(kOpened);
  const TimePoint pinged = kOpened + Keepalive::kTime;
  ASSERT_EQ(keepalive.Check(pinged), Action::kPing);
  keepalive.OnRead(pinged + kTick);
  EXPECT_EQ(keepalive.deadline(), pinged + kTick + Keepalive::kTime);
  EXPECT_EQ(keepalive.Check(pinged + Keepalive::kTimeout), Action::kNone);
  EXPECT_EQ(keepalive.Check(pinged + kTick + Keepalive::kTime), Action::kPing);
}

}  // namespace
}  // namespace hps::server
