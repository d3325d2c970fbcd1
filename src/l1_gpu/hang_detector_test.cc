#include "l1_gpu/hang_detector.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

// Catches: a wait of a minute on the promotion thread for each table of a hung device.
TEST(HangDetectorTest, IsNotRepeatedUntilTheDeviceAnswers) {
  constexpr Duration kLong = std::chrono::hours(1000);
  HangDetector wait(kLong);
  const TimePoint before = RealClock().Now();
  EXPECT_GE(wait.deadline(), before + kLong);
  EXPECT_FALSE(wait.Answers(absl::DeadlineExceededError("late")));
  const Deadline again = wait.deadline();
  EXPECT_LE(again, RealClock().Now() + HangDetector::kAgain);
  EXPECT_GE(again, before + HangDetector::kAgain) << "it may answer";
  EXPECT_FALSE(wait.Answers(absl::DeadlineExceededError("still late")));
  EXPECT_LT(wait.deadline(), before + kLong);
  EXPECT_TRUE(wait.Answers(absl::InternalError("it has failed, and holds nobody up")));
  EXPECT_GE(wait.deadline(), before + kLong);
  EXPECT_TRUE(wait.Answers(absl::OkStatus()));
  EXPECT_GE(wait.deadline(), before + kLong);
}

}  // namespace
}  // namespace hps
