// Level 1 of a store, with device caches in host memory.
#include "node/device_level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "node/test_device_level.h"
#include "testing/await.h"

namespace hps {
namespace {

TEST_F(DeviceLevelTest, RowsRiseAndAreCountedByDevice) {
  devices_.present = {2, 5};
  Import(Files("t", 100, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", Iota(100), 5).counts[KeyStatus::kHitL3], 100u);
  Drain(*store);
  const Answer again = LookUp(*store, "t", Iota(100), 5);
  EXPECT_EQ(again.counts[kL1], 100u);
  EXPECT_EQ(again.value, 1);
  EXPECT_EQ(LookUp(*store, "t", {1, 2, 3}, 2).counts[KeyStatus::kHitL2], 3u) << "has its own";
  Drain(*store);
  EXPECT_EQ(LookUp(*store, "t", {1, 2, 3}, -1).counts[KeyStatus::kHitL2], 3u) << "on the host";
  const TableStatistics table = store->Statistics().tables.front();
  ASSERT_EQ(table.l1_devices.size(), 2u);
  EXPECT_EQ(table.l1_devices[0].device, 2);
  EXPECT_EQ(table.l1_devices[0].l1.entries, 3u);
  EXPECT_EQ(table.l1_devices[0].hits + table.l1_devices[0].misses, 3u);
  EXPECT_EQ(table.l1_devices[1].device, 5);
  EXPECT_EQ(table.l1_devices[1].hits, 100u);
  EXPECT_EQ(table.l1_devices[1].misses, 100u);
  EXPECT_EQ(table.l1_devices[1].l1.insertions, 100u);
  EXPECT_EQ(table.l1.entries, 103u);
  EXPECT_EQ(table.l1.bytes_max, 2 * table.l1_devices[0].l1.bytes_max);
}

// Catches: a load that waits for a device that does not answer, for each of the model's tables.
TEST_F(DeviceLevelTest, ADeviceThatDoesNotAnswerTakesItsTablesWhenItAnswersAgain) {
  devices_.present = {0, 1};
  Import(Files("a", 100, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "a", Iota(100), 1).value, 1);
  Drain(*store);
  TierFaults& faults = devices_.faults_of_1;
  faults.Plan(TierOperation::kBegin, {});
  EXPECT_EQ(LookUp(*store, "a", {1}, 1).value, 1) << "the host answers in its place";
  EXPECT_FALSE(IsUp(*store, 1));
  EXPECT_TRUE(IsUp(*store, 0));
  const uint64_t opened = faults.calls(TierOperation::kOpenTable);
  const uint64_t dumped = faults.calls(TierOperation::kDump);
  ASSERT_TRUE(store->Import(Files("a", 100, 2)).ok());
  EXPECT_EQ(LookUp(*store, "a", {1}, 1).value, 2);
  EXPECT_EQ(faults.calls(TierOperation::kOpenTable), opened);
  EXPECT_EQ(faults.calls(TierOperation::kDump), dumped);
  const auto devices_of_a = [&] { return store->Statistics().tables.front().l1_devices.size(); };
  faults.Clear();
  ASSERT_TRUE(AwaitCondition([&] {
    EXPECT_EQ(LookUp(*store, "a", {1}, 1).value, 2);
    return devices_of_a() == 2;
  })) << "lookups have found that it answers again";
  EXPECT_TRUE(IsUp(*store, 1));
}

// ... also where no lookup has found yet that the device hangs.
TEST_F(DeviceLevelTest, OneWaitForADeviceThatHangsIsEnough) {
  devices_.present = {0, 1};
  Import(Files("a", 100, 1));
  const auto store = Open();
  TierFaults& faults = devices_.faults_of_1;
  faults.Plan(TierOperation::kDump, {.status = absl::DeadlineExceededError("it hangs")});
  const uint64_t opened = faults.calls(TierOperation::kOpenTable);
  for (const float value : {2.0F, 3.0F}) {
    ASSERT_TRUE(store->Import(Files("a", 100, value)).ok());
    EXPECT_EQ(LookUp(*store, "a", {1}, 0).value, value);
    EXPECT_FALSE(IsUp(*store, 1));
  }
  EXPECT_EQ(faults.calls(TierOperation::kDump), 1u);
  EXPECT_EQ(faults.calls(TierOperation::kOpenTable), opened);
}

TEST_F(DeviceLevelTest, ACallThatIsLargerThanThePoolIsAnsweredInPieces) {
  config_.l1.call_keys_max = 8;
  Import(Files("t", 100, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", Iota(100)).value, 1);
}

TEST_F(DeviceLevelTest, BudgetsAreDividedAndOverridden) {
  config_.l1.bytes_max = 400'000;
  config_.model = {{.name = "m",
                    .table = {{.name = "b", .l1_bytes = 100'000},
                              {.name = "c", .l1_share = 0.0},
                              {.name = "e", .l1_bytes = 1}}}};
  for (const char* table : {"a", "b", "c", "d", "e"}) Import(Files(table, 10'000, 1));
  const auto store = Open();
  std::map<std::string, uint64_t> bytes;
  uint64_t sum = 0;
  for (const TableStatistics& table : store->Statistics().tables) {
    bytes[table.name] = table.l1.bytes_max;
    sum += table.l1.bytes_max;
    const Answer answer = LookUp(*store, table.name.substr(2), Iota(100));
    EXPECT_EQ(answer.value, 1) << table.name;
  }
  EXPECT_LE(sum, config_.l1.bytes_max);
  EXPECT_LE(bytes["m/b"], 100'000u);
  EXPECT_GT(bytes["m/b"], 50'000u);
  EXPECT_EQ(bytes["m/c"], 0u) << "stays out";
  EXPECT_EQ(bytes["m/e"], 0u) << "a byte is of no use";
  EXPECT_GT(bytes["m/a"], 0u);
  EXPECT_EQ(bytes["m/a"], bytes["m/d"]);
}

// The new incarnation gets its budget beside the old one if there is room, and is filled with the
// hot keys before it is served: no lookup finds it cold.
TEST_F(DeviceLevelTest, ASwitchKeepsTheHotKeysHot) {
  Import(Files("t", 1000, 1));
  const auto store = Open();
  LookUp(*store, "t", Iota(50, 200));
  Drain(*store);
  ASSERT_TRUE(store->Import(Files("t", 1000, 2)).ok());
  const Answer answer = LookUp(*store, "t", Iota(50, 200));
  EXPECT_EQ(answer.value, 2);
  EXPECT_EQ(answer.counts[kL1], 50u);
}

// If there is room for one incarnation only, it waits until the old one is destroyed. Catches:
// memory held twice, a lost budget, and rows of the old import.
TEST_F(DeviceLevelTest, ASwitchReusesTheMemory) {
  config_.l1.bytes_max = Need(1000);
  Import(Files("t", 1000, 1));
  const auto store = Open();
  for (float value = 1; value < 6; ++value) {
    EXPECT_EQ(LookUp(*store, "t", Iota(50, 200)).value, value);
    Drain(*store);
    ExpectSoonInL1(*store, "t", Iota(50, 200), value);
    ASSERT_TRUE(store->Import(Files("t", 1000, value + 1)).ok());
    EXPECT_EQ(LookUp(*store, "t", Iota(50, 200)).value, value + 1);
    ExpectSoonInL1(*store, "t", Iota(50, 200), value + 1);
  }
}

TEST_F(DeviceLevelTest, ATableThatIsNotTouchedKeepsItsRows) {
  Import(Files("a", 100, 1));
  Import(Files("b", 100, 1));
  const auto store = Open();
  LookUp(*store, "a", Iota(100));
  Drain(*store);
  ASSERT_TRUE(store->Import(Files("b", 100, 2)).ok());
  EXPECT_EQ(LookUp(*store, "a", Iota(100)).counts[kL1], 100u);
  EXPECT_EQ(LookUp(*store, "b", Iota(100)).value, 2);
}

// One switch drops the table that fills the level and brings a new one, which has to wait for it.
TEST_F(DeviceLevelTest, ANewTableThatHadToWaitIsPreloaded) {
  config_.l1.bytes_max = Need(1000);
  config_.l1.preload = 0.5;
  Import(Files("a", 1000, 1));
  const auto store = Open();
  ExpectSoonInL1(*store, "a", Iota(500), 1);
  Import(Files("b", 1000, 2));  // is staged
  ASSERT_TRUE(store->Drop("m/a").ok());
  ASSERT_EQ(store->Statistics().tables.size(), 1u);
  ExpectSoonInL1(*store, "b", Iota(500), 2);
}

// Catches: a table that is served and is created again, or emptied, for the sake of another.
TEST_F(DeviceLevelTest, ALaterTableGetsWhatIsFree) {
  config_.l1.bytes_max = Need(20'000);
  config_.l1.preload = 0.5;
  Import(Files("a", 20'000, 1));
  const auto store = Open();
  const uint64_t all = PartOf(*store, "m/a");
  EXPECT_GT(all, config_.l1.bytes_max / 8 * 7);
  ASSERT_TRUE(store->Import(Files("b", 20'000, 2)).ok());
  EXPECT_EQ(PartOf(*store, "m/a"), all);
  EXPECT_EQ(PartOf(*store, "m/b"), 0u) << "nothing was free";
  EXPECT_EQ(LookUp(*store, "a", Iota(64)).counts[kL1], 64u);
  EXPECT_EQ(LookUp(*store, "b", Iota(10)).value, 2);
  // A smaller import leaves a part, which the other gets when it is imported again.
  ASSERT_TRUE(store->Import(Files("a", 10, 3)).ok());
  ASSERT_TRUE(AwaitPart(*store, "m/a"));
  EXPECT_EQ(PartOf(*store, "m/b"), 0u);
  ASSERT_TRUE(store->Import(Files("b", 20'000, 4)).ok());
  ASSERT_TRUE(AwaitPart(*store, "m/b"));
  EXPECT_GT(PartOf(*store, "m/b"), config_.l1.bytes_max / 2);
  EXPECT_EQ(LookUp(*store, "a", Iota(10)).value, 3);
  EXPECT_EQ(LookUp(*store, "b", Iota(64)).value, 4);
}

// As the models of a server's start do.
TEST_F(DeviceLevelTest, TablesThatAreLoadedTogetherDivideTheLevel) {
  config_.l1.bytes_max = Need(20'000);
  for (const char* table : {"a", "b"}) Import(Files(table, 20'000, 1));
  const auto store = Open();
  for (const char* table : {"m/a", "m/b"}) {
    EXPECT_GT(PartOf(*store, table), config_.l1.bytes_max / 8 * 3);
    EXPECT_LE(PartOf(*store, table), config_.l1.bytes_max / 2);
  }
}

// Catches: a session without its cache's tables, a torn row, or an older row while incarnations are
// replaced.
TEST_F(DeviceLevelTest, LookUpsGoOnWhileTablesSwitch) {
  config_.l1.bytes_max = Need(1000);
  Import(Files("t", 1000, 1));
  const auto store = Open();
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> wrong = 0;
  std::thread reader([&] {
    float newest = 1;
    while (!stop.load()) {
      const float value = LookUp(*store, "t", Iota(64)).value;
      wrong += !(value >= newest);
      newest = value;
    }
  });
  for (float value = 2; value < 12; ++value)
    EXPECT_TRUE(store->Import(Files("t", 1000, value)).ok());
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(LookUp(*store, "t", {3}).value, 11);
}

}  // namespace
}  // namespace hps
