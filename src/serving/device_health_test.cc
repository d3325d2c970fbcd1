#include "serving/device_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr TimePoint kNow{std::chrono::hours(1)};

// Catches: a log that does not say which device failed, or says it with every lookup.
TEST(DeviceHealthTest, SaysOnceWhichDeviceFailedAndOnceThatItAnswersAgain) {
  testing::internal::CaptureStderr();
  int answers = 0;
  DeviceHealth health(3, [&] { ++answers; });
  health.NoteAnswer();
  EXPECT_TRUE(health.is_up());
  for (int i = 0; i < 3; ++i) health.NoteFailure(kNow, absl::InternalError("illegal access"));
  EXPECT_FALSE(health.is_up());
  EXPECT_FALSE(health.Admits(kNow));
  EXPECT_TRUE(health.Admits(kNow + CircuitBreaker::kRest));
  EXPECT_EQ(answers, 0);
  for (int i = 0; i < 3; ++i) health.NoteAnswer();
  EXPECT_TRUE(health.is_up());
  EXPECT_EQ(answers, 1);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(log, HasSubstr("device 3: INTERNAL: illegal access: lookups bypass its level 1 "
                             "until it answers again"));
  EXPECT_THAT(log, HasSubstr("device 3: answers again"));
}

}  // namespace
}  // namespace hps
