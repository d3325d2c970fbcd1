#include "testing/await.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>

namespace hps {
namespace {

// tools/unstable.py looks for this text in GoogleTest's report.
constexpr const char* kText = "Actual: false (missed wait: nothing came within 0.001 s)";
constexpr auto kShort = std::chrono::milliseconds(1);

TEST(AwaitTest, AConditionThatHolds) {
  int asked = 0;
  EXPECT_TRUE(AwaitCondition([&] { return ++asked == 3; }));
  EXPECT_TRUE(HoldsInTime([] { return true; }, Duration(0)));
}

TEST(AwaitTest, AConditionThatDoesNotHoldInTime) {
  EXPECT_FALSE(HoldsInTime([] { return false; }, kShort));
  EXPECT_NONFATAL_FAILURE(EXPECT_TRUE(AwaitCondition([] { return false; }, kShort)), kText);
}

TEST(AwaitTest, ALatch) {
  Latch latch(1);
  EXPECT_NONFATAL_FAILURE(EXPECT_TRUE(AwaitLatch(latch, kShort)), kText);
  latch.CountDown();
  EXPECT_TRUE(AwaitLatch(latch));
}

}  // namespace
}  // namespace hps
