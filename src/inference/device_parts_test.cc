// Large predictions that go through a device in parts, against the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <vector>

#include "hps/lookup_cancel.h"
#include "inference/batch_executor.h"
#include "inference/test_device_lookup.h"

namespace hps {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPart = 8;  // samples

class DevicePartsTest : public DeviceLookupFixture {
 protected:
  DevicePartsTest() : DeviceLookupFixture(kPart) {}

  bool on_gpu() const { return GetParam() == Place::kGpu; }

  // In how many parts requests are answered; a GPU does not say, 0. They get the scores of the
  // host.
  int PartsOf(const std::vector<Asked>& all) {
    machine_.parts = 0;
    machine_.part_samples.clear();
    CheckSame(all);
    return machine_.parts;
  }

  static size_t KeyCount(const Asked& asked) { return asked.wide.size() + asked.narrow.size(); }

  // A request whose samples have these numbers of keys of `wide`, and two of `narrow` each.
  static Asked WithBags(const std::vector<int64_t>& bags) {
    Asked asked = NewRequest(static_cast<int64_t>(bags.size()), false, 0);
    for (const int64_t bag : bags) {
      asked.offsets.push_back(static_cast<int64_t>(asked.wide.size()));
      for (int64_t k = 0; k < bag; ++k) asked.wide.push_back((7 * bag + 31 * k) % kRows);
    }
    asked.offsets.push_back(static_cast<int64_t>(asked.wide.size()));
    return asked;
  }

  // Calls `then` when part number `part` of the next request is looked up.
  void AtLookupOf(uint64_t part, std::function<void()> then) {
    machine_.cache_faults.Plan(
        TierOperation::kBegin,
        {.fault = TierFault::kNone, .calls_skipped = part, .times = 1, .before = std::move(then)});
  }
};

// Catches: parts that begin at wrong rows, bags, inputs of the client or scores; rows of a part
// that the next ones overwrite before the network has read them.
TEST_P(DevicePartsTest, LargeRequestsGetTheScoresOfTheHost) {
  for (const int64_t batch : {15, 16, 17, 23, 24, 25, 31, 32, 33, 80, 1000}) {
    SCOPED_TRACE(batch);
    const int parts = batch < 2 * kPart ? 0 : static_cast<int>((batch + kPart - 1) / kPart);
    for (const auto& [ragged, bag] : {std::pair{true, 1}, {false, 1}, {false, 3}, {false, 0}}) {
      SCOPED_TRACE(testing::Message() << "ragged " << ragged << ", bag " << bag);
      const int was_in = PartsOf({NewRequest(batch, ragged, bag)});
      EXPECT_EQ(was_in, on_gpu() ? 0 : parts);
    }
  }
  EXPECT_EQ(device_runs(), 11U * 4);  // one for each request
  EXPECT_EQ(device_version_->predictor()->runs().device_failures, 0U);
  EXPECT_EQ(machine_.runs_from_host, 0);
}

// A batch of two requests, a small request, and one whose client asks for rows as well.
TEST_P(DevicePartsTest, OthersAreNotInParts) {
  if (on_gpu()) GTEST_SKIP() << "a GPU does not count parts";
  EXPECT_EQ(PartsOf({NewRequest(20, true), NewRequest(1, true)}), 0);
  std::vector<Asked> with_rows = {NewRequest(20, false)};
  with_rows[0].output_names = {"narrow", "score"};
  EXPECT_EQ(PartsOf(with_rows), 0);
  BatchExecutor whole({.keys_max = 4096, .clock = &clock_, .part_samples = 0});
  std::vector<Asked> one = {NewRequest(20, false)};
  ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, whole, one));
  EXPECT_EQ(machine_.parts, 0);
}

TEST_P(DevicePartsTest, EachKeyCountsOnce) {
  std::vector<Asked> one = {NewRequest(30, true)};
  for (int round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, one));
    EXPECT_EQ(device_executor_.counts().total(), one[0].plan.key_count);
    EXPECT_EQ(one[0].plan.degraded_count, 0U);
  }
}

// Catches: a request that is lost with its device, answers of parts before the failure that stay,
// keys that count twice.
TEST_P(DevicePartsTest, APartThatFailsTakesTheRequestToTheHost) {
  if (on_gpu()) GTEST_SKIP() << "a GPU can't be made to fail here";
  const std::vector<Asked> all = {NewRequest(4 * kPart, true)};
  const auto check_fails_at = [&](int parts) {
    SCOPED_TRACE(parts);
    EXPECT_EQ(PartsOf(all), parts);
    EXPECT_EQ(device_executor_.counts().total(), KeyCount(all[0]));
    machine_.room_error = machine_.run_error = absl::OkStatus();
    machine_.cache_faults.Clear();
    clock_.ahead += CircuitBreaker::kRest;
    EXPECT_EQ(PartsOf(all), 4);
    EXPECT_EQ(device_executor_.counts().total(), KeyCount(all[0]));
  };
  for (const size_t part : {0, 1, 2, 3}) {
    machine_.failing_part = part;
    machine_.room_error = absl::DeadlineExceededError("the device hangs");
    ASSERT_NO_FATAL_FAILURE(check_fails_at(static_cast<int>(part)));
    machine_.room_error = absl::ResourceExhaustedError("no memory");
    ASSERT_NO_FATAL_FAILURE(check_fails_at(static_cast<int>(part)));
    machine_.cache_faults.Plan(TierOperation::kBegin,
                               {.status = absl::InternalError("lost"), .calls_skipped = part});
    ASSERT_NO_FATAL_FAILURE(check_fails_at(static_cast<int>(part)));
    machine_.run_error = absl::UnavailableError("the network's kernel failed");
    ASSERT_NO_FATAL_FAILURE(check_fails_at(static_cast<int>(part)));
  }
}

TEST_P(DevicePartsTest, ANetworkThatFailsAtTheEndTakesTheRequestToTheHost) {
  if (on_gpu()) GTEST_SKIP() << "a GPU can't be made to fail here";
  machine_.failing_part = HostMachine::kEndOfParts;
  machine_.run_error = absl::InternalError("the network's kernel failed");
  const std::vector<Asked> all = {NewRequest(3 * kPart + 1, true)};
  EXPECT_EQ(PartsOf(all), 4);
  EXPECT_EQ(PartsOf(all), 0);  // it rests
  EXPECT_EQ(machine_.runs_from_rows, 1);
  EXPECT_GT(machine_.runs_from_host, 0);
}

// Nothing has been read from level 3 yet.
TEST_P(DevicePartsTest, ARequestKnowsHowManyRowsItLacks) {
  std::vector<Asked> one = {NewRequest(20, false, 3)};
  ASSERT_NO_FATAL_FAILURE(
      Answer(*device_version_, device_executor_, one, {.deadline = Deadline::min()}));
  EXPECT_EQ(one[0].plan.degraded_count, 20U * 3 + 20 * 2);
  EXPECT_EQ(device_executor_.counts()[KeyStatus::kDefaultDegraded], one[0].plan.degraded_count);
  EXPECT_EQ(device_runs(), 1U);
}

// Catches: parts that each have the time of the whole request.
TEST_P(DevicePartsTest, TheDeadlineIsThatOfAllParts) {
  if (on_gpu()) GTEST_SKIP() << "the lookups of a GPU can't be followed";
  AtLookupOf(2, [&] { clock_.ahead += std::chrono::hours(1); });
  std::vector<Asked> one = {NewRequest(4 * kPart, false, 1)};
  ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, one,
                                 {.deadline = clock_.Now() + std::chrono::seconds(50)}));
  EXPECT_EQ(one[0].plan.degraded_count, static_cast<size_t>(kPart * 3));  // the last part
  EXPECT_EQ(machine_.parts, 4);
}

// Catches: a device that hangs for a minute with each part.
TEST_P(DevicePartsTest, PartsThatTakeAMinuteTogetherAreAFailure) {
  if (on_gpu()) GTEST_SKIP() << "the lookups of a GPU can't be followed";
  AtLookupOf(1, [&] { clock_.ahead += std::chrono::minutes(1); });
  EXPECT_EQ(PartsOf({NewRequest(4 * kPart, true)}), 1);
  EXPECT_EQ(PartsOf({NewRequest(4 * kPart, true)}), 0);  // it rests
}

TEST_P(DevicePartsTest, ACancelledRequestWaitsForNoMoreRows) {
  if (on_gpu()) GTEST_SKIP() << "the lookups of a GPU can't be followed";
  LookupCancel cancel;
  AtLookupOf(1, [&] { cancel.Cancel(); });
  std::vector<Asked> one = {NewRequest(4 * kPart, false, 1)};
  ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, one, {.cancel = &cancel}));
  EXPECT_EQ(one[0].plan.degraded_count, static_cast<size_t>(3 * kPart * 3));
  EXPECT_EQ(machine_.parts, 4);
}

TEST_P(DevicePartsTest, ARequestThatNobodyWantsEndsWithItsPart) {
  if (on_gpu()) GTEST_SKIP() << "the lookups of a GPU can't be followed";
  std::atomic<bool> unwanted = false;
  AtLookupOf(1, [&] { unwanted = true; });
  std::vector<Asked> one = {NewRequest(4 * kPart, false, 1)};
  ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, one, {.unwanted = &unwanted}));
  EXPECT_EQ(machine_.parts, 2);
  EXPECT_EQ(machine_.runs_from_rows, 0);
}

// A server ends a request that is late without its predictions.
TEST_P(DevicePartsTest, ARequestThatIsNotPredictedDoesNotDisturbTheNext) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Asked> one = {NewRequest(50 + round, true)};
    ASSERT_NO_FATAL_FAILURE(Plan(one[0], *device_version_));
    ExecutionPlan* const plan = &one[0].plan;
    ASSERT_TRUE(device_executor_.LookUp(*device_version_, {&plan, 1}, {}).ok());
    // In parts, whole, and of several requests.
    ASSERT_NO_FATAL_FAILURE(round == 0   ? CheckSame({NewRequest(40, true)})
                            : round == 1 ? CheckSame({NewRequest(3, true)})
                                         : CheckSame({NewRequest(9, true), NewRequest(2, true)}));
  }
}

// Rows have 16 bytes of `wide` and 12 of `narrow`.
TEST_P(DevicePartsTest, ARequestWhoseRowsOrKeysHaveNoRoomTogetherIsInParts) {
  if (on_gpu()) GTEST_SKIP() << "a GPU's room is larger";
  const std::vector<Asked> one = {NewRequest(15, false, 2)};
  EXPECT_EQ(PartsOf(one), 0);
  // A whole request may take all of it: 15 x 512 bytes of `wide`, 15 x 24 of `narrow`.
  machine_.room_row_bytes = 15 * 512 + 512;
  EXPECT_EQ(PartsOf({NewRequest(15, false, 32)}), 0);
  machine_.room_row_bytes = 15 * 512;
  EXPECT_EQ(PartsOf({NewRequest(15, false, 32)}), 8);
  EXPECT_THAT(machine_.part_samples, ElementsAre(2, 2, 2, 2, 2, 2, 2, 1));
  machine_.room_row_bytes = uint64_t{1} << 20;
  machine_.room_keys_max = 15 * 4;
  EXPECT_EQ(PartsOf(one), 0);
  machine_.room_keys_max = 15 * 4 - 1;
  EXPECT_EQ(PartsOf(one), 2);
  EXPECT_THAT(machine_.part_samples, ElementsAre(8, 7));
  machine_.room_keys_max = 4 * 4;
  EXPECT_EQ(PartsOf(one), 4);
  EXPECT_THAT(machine_.part_samples, ElementsAre(4, 4, 4, 3));
  EXPECT_EQ(machine_.runs_from_host, 0);
}

// Catches: parts that are cut by the mean of all samples where some have many more keys.
TEST_P(DevicePartsTest, APartWhoseBagsHaveNoRoomIsHalved) {
  if (on_gpu()) GTEST_SKIP() << "a GPU's room is larger";
  std::vector<Asked> one = {WithBags({1, 1, 1, 1, 1, 1, 1, 1, 20, 1, 1, 1, 1, 1, 1, 1, 1, 1})};
  machine_.room_keys_max = 30;  // a mean sample has four keys, four samples once have 31
  EXPECT_EQ(PartsOf(one), 5);
  EXPECT_THAT(machine_.part_samples, ElementsAre(4, 4, 2, 4, 4));
  machine_.room_keys_max = 22 + 2;  // no other sample has room beside that of 22 keys
  EXPECT_EQ(PartsOf(one), 6);
  EXPECT_THAT(machine_.part_samples, ElementsAre(4, 4, 1, 4, 4, 1));
  EXPECT_EQ(machine_.runs_from_host, 0);
}

TEST_P(DevicePartsTest, ASampleThatHasNoRoomTakesTheRequestToTheHost) {
  if (on_gpu()) GTEST_SKIP() << "a GPU's room is larger";
  const std::vector<Asked> one = {WithBags({1, 1, 1, 1, 1, 1, 1, 1, 20, 1, 1, 1, 1, 1, 1, 1, 1})};
  machine_.room_keys_max = 22 - 1;
  EXPECT_EQ(PartsOf(one), 2);
  EXPECT_EQ(device_executor_.counts().total(), KeyCount(one[0]));
  EXPECT_EQ(machine_.runs_from_rows, 0);
  EXPECT_GT(machine_.runs_from_host, 0);
  machine_.room_keys_max = 22;  // no rest: the device has not failed
  EXPECT_EQ(PartsOf(one), 5);
}

TEST_P(DevicePartsTest, PartsHaveNoMoreSamplesThanTheDeviceTakes) {
  if (on_gpu()) GTEST_SKIP() << "a GPU's limits are larger";
  machine_.limits.part_samples_max = 2;
  EXPECT_EQ(PartsOf({NewRequest(3, true)}), 0);
  EXPECT_EQ(PartsOf({NewRequest(4, true)}), 2);
  machine_.limits.parts_total_max = 15;
  machine_.limits.samples_max = 7;
  machine_.runs_from_rows = 0;
  EXPECT_EQ(PartsOf({NewRequest(16, true)}), 0);
  EXPECT_EQ(machine_.runs_from_rows, 3);  // of 7, 7 and 2 samples
}

INSTANTIATE_TEST_SUITE_P(Places, DevicePartsTest, ::testing::ValuesIn(Places()), PlaceName);

class DevicePartsOfBagsTest : public DeviceLookupFixture {
 protected:
  DevicePartsOfBagsTest() : DeviceLookupFixture(kPart, TwoBags()) {}

  // Samples of parts with an even number have no keys.
  static Asked NewHalfEmpty(int64_t batch) {
    Asked asked;
    for (int64_t i = 0; i < batch; ++i) {
      asked.offsets.push_back(static_cast<int64_t>(asked.wide.size()));
      for (int64_t k = 0; k < (i / kPart % 2) * (1 + i % 3); ++k) asked.wide.push_back(i + 40 * k);
    }
    asked.offsets.push_back(static_cast<int64_t>(asked.wide.size()));
    return asked;
  }
};

// Catches: rows of an earlier part where a part has none.
TEST_P(DevicePartsOfBagsTest, PartsWithoutKeysGetTheScoresOfTheHost) {
  for (const int64_t batch : {16, 24, 34, 72, 73}) {
    SCOPED_TRACE(batch);
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewHalfEmpty(batch)}));
  }
  EXPECT_EQ(device_runs(), 5U);
}

INSTANTIATE_TEST_SUITE_P(Places, DevicePartsOfBagsTest, ::testing::ValuesIn(Places()), PlaceName);

class DevicePartsOfThousandsTest : public DeviceLookupFixture {
 protected:
  DevicePartsOfThousandsTest() : DeviceLookupFixture(4096) {}
};

// The keys of a part go to the device in several copies, and its lookup has many pieces.
TEST_P(DevicePartsOfThousandsTest, TheyGetTheScoresOfTheHost) {
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(20'000, true)}));
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(16'384, false, 5)}));
  EXPECT_EQ(device_runs(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Places, DevicePartsOfThousandsTest, ::testing::ValuesIn(Places()),
                         PlaceName);

}  // namespace
}  // namespace hps
