#include "base/step_thread.h"

#include <gtest/gtest.h>

#include <atomic>

#include "testing/await.h"

namespace hps {
namespace {

TEST(StepThreadTest, StepsUntilItEnds) {
  std::atomic<int> steps = 0;
  StepThread thread;
  const auto step = [&] {
    ++steps;
    return std::chrono::milliseconds(steps % 2);
  };
  ASSERT_TRUE(thread.Start("hps-test", step).ok());
  ASSERT_TRUE(AwaitCondition([&] { return steps >= 3; }));
  EXPECT_FALSE(thread.is_ending());
  thread.End();
  EXPECT_TRUE(thread.is_ending());
  const int ended_at = steps;
  thread.End();
  EXPECT_EQ(steps, ended_at);
}

TEST(StepThreadTest, AnEndDoesNotWaitForTheNextStep) {
  std::atomic<int> steps = 0;
  {
    StepThread thread;
    const auto step = [&] {
      ++steps;
      return std::chrono::hours(1);
    };
    ASSERT_TRUE(thread.Start("hps-test", step).ok());
    ASSERT_TRUE(AwaitCondition([&] { return steps == 1; }));
  }
  EXPECT_EQ(steps, 1);
}

TEST(StepThreadTest, EndsWithoutAStart) { EXPECT_FALSE(StepThread().is_ending()); }

}  // namespace
}  // namespace hps
