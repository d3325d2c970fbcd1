#include "testing/faults/fault_points.h"

#include <gtest/gtest.h>

#include <signal.h>

#include <thread>

#include "base/fault_point.h"
#include "testing/await.h"

namespace hps {
namespace {

absl::Status Step() {
  HPS_FAULT_POINT("testing.fault_points_test.step");
  return absl::OkStatus();
}

constexpr char kStep[] = "testing.fault_points_test.step";

class FaultPointTest : public testing::Test {
 protected:
  void TearDown() override { FaultPoints::DisarmAll(); }
};

TEST_F(FaultPointTest, PassesWhenNotArmed) { EXPECT_TRUE(Step().ok()); }

TEST_F(FaultPointTest, FailsAsPlannedAndAsOftenAsPlanned) {
  FaultPoints::Arm(kStep, {.action = FaultAction::kFail,
                           .status = absl::ResourceExhaustedError("full"),
                           .arrivals_skipped = 2,
                           .times = 1});
  EXPECT_TRUE(Step().ok());
  EXPECT_TRUE(Step().ok());
  const absl::Status failed = Step();
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(failed.message().find(kStep), absl::string_view::npos);
  EXPECT_TRUE(Step().ok());
  EXPECT_EQ(FaultPoints::Arrivals()[kStep], 4u);
}

TEST_F(FaultPointTest, OtherPointsPass) {
  FaultPoints::Arm("testing.fault_points_test.other", {});
  EXPECT_TRUE(Step().ok());
}

TEST_F(FaultPointTest, AWaitEndsWhenDisarmed) {
  FaultPoints::Arm(kStep, {.action = FaultAction::kWait});
  EXPECT_FALSE(FaultPoints::IsWaiting(kStep));
  absl::Status result = absl::UnknownError("did not return");
  std::thread thread([&] { result = Step(); });
  EXPECT_TRUE(AwaitCondition([] { return FaultPoints::IsWaiting(kStep); }));
  FaultPoints::Disarm(kStep);
  thread.join();
  EXPECT_TRUE(result.ok()) << result;
}

TEST_F(FaultPointTest, ArmsFromText) {
  ASSERT_TRUE(
      FaultPoints::ArmFromText("a.b=abort,testing.fault_points_test.step=fail:DATA_LOSS@1").ok());
  EXPECT_TRUE(Step().ok());
  EXPECT_EQ(Step().code(), absl::StatusCode::kDataLoss);
}

TEST_F(FaultPointTest, RefusesBadText) {
  for (const char* text : {"x", "=abort", "x=", "x=fall", "x=fail:NO_SUCH", "x=abort:DATA_LOSS",
                           "x=abort@", "x=abort@1x"}) {
    EXPECT_EQ(FaultPoints::ArmFromText(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST_F(FaultPointTest, AbortEndsTheProcessAsKillDoes) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        FaultPoints::Arm(kStep, {.action = FaultAction::kAbort, .arrivals_skipped = 1});
        static_cast<void>(Step());
        static_cast<void>(Step());
      },
      testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace hps
