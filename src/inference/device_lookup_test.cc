// Predictions whose rows stay on a device, against those whose rows come to the host.
#include "inference/device_lookup.h"

#include <gtest/gtest.h>

#include <vector>

#include "inference/test_device_lookup.h"

namespace hps {
namespace {

class DeviceLookupTest : public DeviceLookupFixture {};

// Catches: bags that are cut elsewhere than the offsets say, rows of another request or table, rows
// that are not aligned as the kernels want them, runs of a large batch that begin at the wrong
// rows.
TEST_P(DeviceLookupTest, RequestsOfAllKindsGetTheScoresOfTheHost) {
  const auto samples = static_cast<int64_t>(PredictionSession::kSamplesMax);
  for (int round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(1, false)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(7, true)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, false, 5), NewRequest(1, false, 5)}));
    ASSERT_NO_FATAL_FAILURE(
        CheckSame({NewRequest(1, false), NewRequest(33, true), NewRequest(0, false),
                   NewRequest(2, false, 3), NewRequest(5, true)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(2, false, 0)}));  // empty bags
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(samples + 9, true), NewRequest(11, true)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, false), NewRequest(samples + 1, false)}));
  }
  EXPECT_EQ(device_runs(), 3U * 7);  // one for each batch, whatever its size
  EXPECT_EQ(device_version_->predictor()->runs().device_failures, 0U);
  EXPECT_EQ(machine_.runs_from_host, 0);
}

// Its keys go to the device in several copies, and its lookup has many pieces.
TEST_P(DeviceLookupTest, ALargeBatchGetsTheScoresOfTheHost) {
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(20'000, false, 5), NewRequest(9'999, true)}));
  EXPECT_EQ(device_runs(), 1U);
}

// Catches: rows of a request that is not predicted in the place of the next one's.
TEST_P(DeviceLookupTest, ARequestCanBeLeftOutOfTheRun) {
  ASSERT_NO_FATAL_FAILURE(
      CheckSame({NewRequest(3, false), NewRequest(5, false), NewRequest(4, false)}, 1));
  ASSERT_NO_FATAL_FAILURE(
      CheckSame({NewRequest(3, true), NewRequest(5, false), NewRequest(4, true)}, 0));
}

TEST_P(DeviceLookupTest, RowsThatAreAskedForComeToTheHost) {
  std::vector<Asked> all = {NewRequest(3, true), NewRequest(2, false)};
  all[1].output_names = {"narrow", "score"};
  ASSERT_NO_FATAL_FAILURE(CheckSame(all));
  EXPECT_EQ(machine_.runs_from_rows, 0);
}

TEST_P(DeviceLookupTest, EachRequestKnowsHowManyRowsItLacks) {
  std::vector<Asked> all = {NewRequest(2, false, 3), NewRequest(1, false)};
  ASSERT_NO_FATAL_FAILURE(
      Answer(*device_version_, device_executor_, all, {.deadline = Deadline::min()}));
  // Nothing has been read from level 3 yet.
  EXPECT_EQ(all[0].plan.degraded_count, 2U * 3 + 2 * 2);
  EXPECT_EQ(all[1].plan.degraded_count, 1U + 2);
  EXPECT_EQ(device_runs(), 1U);
  std::vector<Asked> one = {NewRequest(2, false, 2)};
  ASSERT_NO_FATAL_FAILURE(
      Answer(*device_version_, device_executor_, one, {.deadline = Deadline::min()}));
  EXPECT_EQ(one[0].plan.degraded_count, device_executor_.counts()[KeyStatus::kDefaultDegraded]);
  EXPECT_GT(one[0].plan.degraded_count, 0U);
}

// Catches: a batch that is lost with its device; a device that is asked for each batch while it is
// down, or not asked again when it is up.
TEST_P(DeviceLookupTest, WhatFailsOnTheDeviceTakesItsRowsThroughTheHost) {
  if (GetParam() == Place::kGpu) GTEST_SKIP() << "a GPU can't be made to fail here";
  const std::vector<Asked> all = {NewRequest(3, true), NewRequest(2, false)};
  const auto check_falls_back = [&](int tries) {
    machine_.runs_from_rows = 0;
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));
    EXPECT_EQ(machine_.runs_from_rows, tries);
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));  // it rests
    EXPECT_EQ(machine_.runs_from_rows, tries);
  };
  const auto check_comes_back = [&] {
    clock_.ahead += CircuitBreaker::kRest;
    machine_.runs_from_rows = 0;
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));
    EXPECT_EQ(machine_.runs_from_rows, 2);
  };
  machine_.room_error = absl::DeadlineExceededError("the device hangs");
  ASSERT_NO_FATAL_FAILURE(check_falls_back(0));
  machine_.room_error = absl::OkStatus();
  ASSERT_NO_FATAL_FAILURE(check_comes_back());
  machine_.cache_faults.Plan(TierOperation::kBegin, {.status = absl::InternalError("lost")});
  ASSERT_NO_FATAL_FAILURE(check_falls_back(0));
  machine_.cache_faults.Clear();
  ASSERT_NO_FATAL_FAILURE(check_comes_back());
  // The network fails when its rows are there: they are looked up again.
  machine_.run_error = absl::InternalError("the network's kernel failed");
  ASSERT_NO_FATAL_FAILURE(check_falls_back(1));
  EXPECT_EQ(device_version_->predictor()->runs().device_failures, 2U);
  machine_.run_error = absl::OkStatus();
  ASSERT_NO_FATAL_FAILURE(check_comes_back());
}

// Catches: keys that a metric counts twice because their rows were lost with the device.
TEST_P(DeviceLookupTest, KeysThatAreLookedUpAgainCountOnce) {
  if (GetParam() == Place::kGpu) GTEST_SKIP() << "a GPU can't be made to fail here";
  machine_.run_error = absl::InternalError("the network's kernel failed");
  std::vector<Asked> all = {NewRequest(3, false), NewRequest(2, false, 2)};
  ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, all));
  EXPECT_EQ(machine_.runs_from_rows, 1);
  EXPECT_EQ(device_executor_.counts().total(), all[0].plan.key_count + all[1].plan.key_count);
}

// Catches: one batch that is too large for the device, which takes the others to the host with it.
TEST_P(DeviceLookupTest, ABatchWithoutRoomIsNoFailureOfTheDevice) {
  if (GetParam() == Place::kGpu) GTEST_SKIP() << "a GPU can't be made to fail here";
  machine_.room_error = absl::ResourceExhaustedError("no memory");
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, true)}));
  EXPECT_EQ(machine_.runs_from_rows, 0);
  machine_.room_error = absl::OkStatus();
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, true)}));
  EXPECT_EQ(machine_.runs_from_rows, 1);
}

INSTANTIATE_TEST_SUITE_P(Places, DeviceLookupTest, ::testing::ValuesIn(Places()), PlaceName);

}  // namespace
}  // namespace hps
