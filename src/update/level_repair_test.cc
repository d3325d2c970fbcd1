#include "update/level_repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>

#include "testing/await.h"
#include "update/test_applier.h"

namespace hps {
namespace {

using World = UpdateWorld;

class LevelRepairTest : public ApplierTest {
 protected:
  // A change of the keys that level 2 does not answer.
  void ChangeWithoutL2(std::span<const Key> keys) {
    world_.l2_faults.Plan(TierOperation::kRaiseWatermarks, {.times = 1});
    LiveTable& live = world_.live();
    const ApplyEpoch epoch = live.epochs().Begin();
    levels_.Raise(live, keys, epoch);
    live.epochs().Publish(epoch);
  }
  L2Part& l2() { return world_.live().l2()[0]; }

  LevelRepair levels_{"m/t"};
};

// Catches: a level that is cleared, and then takes a row from before the change that it missed.
TEST_F(LevelRepairTest, ALevelGetsTheWatermarksThatItMissedBeforeItIsCleared) {
  world_.Load();
  const ApplyEpoch before = world_.live().epochs().published();
  const Key key = 1;
  ChangeWithoutL2({&key, 1});
  EXPECT_TRUE(l2().health().needs_clearing());
  EXPECT_TRUE(levels_.CanClear(world_.live()));
  EXPECT_FALSE(world_.live().l1_health(0).quarantined()) << "the others go on";
  levels_.Clear(world_.live());
  EXPECT_FALSE(l2().health().needs_clearing());
  EXPECT_FALSE(levels_.CanClear(world_.live()));
  std::vector<std::byte> row = World::Rows(1, 1);
  ASSERT_TRUE(l2().table().Insert({.keys = {&key, 1}, .rows = World::View(row)}, before).ok());
  EXPECT_EQ(world_.InL2(key), World::kMissing);
}

TEST_F(LevelRepairTest, ALevelThatIsToBeClearedIsNotAsked) {
  world_.Load();
  levels_.QuarantineL2(l2());
  const std::vector<Key> keys = {1, 2};
  levels_.Raise(world_.live(), keys, world_.live().epochs().Begin());
  EXPECT_EQ(world_.l2_faults.calls(TierOperation::kRaiseWatermarks), 0);
  EXPECT_EQ(world_.l1_faults.calls(TierOperation::kRaiseWatermarks), 1);
}

// There is no memory for more keys: the level stays bypassed.
TEST_F(LevelRepairTest, ALevelThatMissedTooManyKeysIsNeverCleared) {
  world_.Load();
  std::vector<Key> keys(NotedKeys::kKeysMax + 1);
  std::iota(keys.begin(), keys.end(), 0);
  ChangeWithoutL2(keys);
  EXPECT_FALSE(levels_.CanClear(world_.live()));
  levels_.Clear(world_.live());
  EXPECT_TRUE(l2().health().needs_clearing());
  EXPECT_EQ(world_.l2_faults.calls(TierOperation::kClear), 0);
  levels_.Reset();
  EXPECT_TRUE(levels_.CanClear(world_.live())) << "of another table, it lacks none";
}

using LevelRepairOnTwoDevicesTest = TwoDevicesTest;

INSTANTIATE_TEST_SUITE_P(Each, LevelRepairOnTwoDevicesTest, ::testing::Values(0, 1));

// Would catch one deadline for all levels: those behind a device that hangs would get an expired
// one, and lose their rows.
TEST_P(LevelRepairOnTwoDevicesTest, ADeviceThatHangsLeavesTheOtherLevelsTheirTime) {
  const TierFaultRule delay = {.fault = TierFault::kDelay};
  for (TierFaults* level : {&faults_, &healthy_faults_, &world_.l2_faults})
    level->Plan(TierOperation::kRaiseWatermarks, delay);
  std::vector<std::thread> answers;  // a call without any time left does not wait for them
  for (TierFaults* level : {&healthy_faults_, &world_.l2_faults}) {
    answers.emplace_back([level] {
      EXPECT_TRUE(AwaitCondition([&] { return level->delayed_count() > 0; }));
      level->Release();
    });
  }
  EXPECT_TRUE(Stream({1}, 2, 2).ok());
  for (std::thread& answer : answers) answer.join();
  EXPECT_TRUE(health(failing_).needs_clearing());
  EXPECT_FALSE(health(healthy_).quarantined());
  EXPECT_FALSE(world_.live().l2()[0].health().quarantined());
  EXPECT_EQ(world_.InL2(1), 2);
}

// Would catch changes that each wait for a device that hangs, and Clear after Clear on its stream.
TEST_P(LevelRepairOnTwoDevicesTest, ADeviceThatHangsIsLeftAloneForAWhile) {
  faults_.Plan(TierOperation::kUpdate, {.times = 1});
  faults_.Plan(TierOperation::kFlush, {.fault = TierFault::kDelay});
  ASSERT_TRUE(Stream({1}, 2, 2).ok());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_TRUE(health(failing_).needs_clearing());
  uint64_t offset = 2;
  const uint64_t raised = faults_.calls(TierOperation::kRaiseWatermarks);
  const uint64_t flushed = faults_.calls(TierOperation::kFlush);
  ASSERT_TRUE(AwaitCondition([&] {
    for (int i = 0; i < 10 && !HasFailure(); ++i) {
      EXPECT_TRUE(Stream({1}, 3, ++offset).ok());
      EXPECT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
    }
    return HasFailure() || faults_.calls(TierOperation::kFlush) >= flushed + 2;
  }));
  // Attempts double their distance: more than these would take minutes.
  EXPECT_LE(faults_.calls(TierOperation::kFlush), flushed + 8);
  EXPECT_EQ(faults_.calls(TierOperation::kClear), 0) << "it would only be queued";
  EXPECT_EQ(faults_.calls(TierOperation::kRaiseWatermarks), raised);
  EXPECT_EQ(world_.InL1(1, healthy_), 3);
  EXPECT_FALSE(health(healthy_).quarantined());
  faults_.Clear();
  ASSERT_TRUE(AwaitCondition([&] {
    EXPECT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
    return HasFailure() || !applier_.needs_refresh();
  }));
  EXPECT_FALSE(health(failing_).quarantined()) << "it answers again";
  EXPECT_EQ(world_.InL1(1, failing_), World::kMissing);
}

TEST_P(LevelRepairOnTwoDevicesTest, TheWarningNamesTheDevice) {
  const std::string expected =
      "level 1 on device " + std::to_string(failing_) + " of table 'm/t' lacks a change";
  std::string log;  // which may leave out lines for a second
  uint64_t offset = 1;
  ASSERT_TRUE(AwaitCondition([&] {
    faults_.Plan(TierOperation::kUpdate, {.times = 1});
    testing::internal::CaptureStderr();
    EXPECT_TRUE(Stream({1}, 2, ++offset).ok());
    EXPECT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
    log = testing::internal::GetCapturedStderr();
    return HasFailure() || log.find("lacks a change") != log.npos;
  }));
  EXPECT_THAT(log, ::testing::HasSubstr(expected));
}

TEST_F(LevelRepairTest, ALevel2ThatMissedAChangeIsBypassedUntilItIsCleared) {
  for (const TierOperation failing : {TierOperation::kUpdate, TierOperation::kRaiseWatermarks}) {
    World world;
    world.Load();
    TableApplier applier("m/t", world.registry, world.store);
    ASSERT_TRUE(World::Upsert(applier, {1, 2}, 1).ok());
    world.Promote({1, 2});
    world.l2_faults.Plan(failing, {.times = 1});
    ASSERT_TRUE(World::Upsert(applier, {1}, 2).ok()) << "a failed level fails no change";
    EXPECT_TRUE(world.live().l2()[0].health().quarantined());
    EXPECT_EQ(world.InL1(1), 2);
    ASSERT_TRUE(World::Upsert(applier, {2}, 3).ok());
    EXPECT_FALSE(world.live().l2()[0].health().quarantined());
    EXPECT_EQ(world.InL2(1), World::kMissing) << "it was cleared";
  }
}

// Each part of level 2 by itself: the other one goes on.
TEST_F(LevelRepairTest, OfALevel2OfTwoPartsOneThatMissedAChangeIsBypassed) {
  for (const TierOperation failing : {TierOperation::kUpdate, TierOperation::kRaiseWatermarks}) {
    for (const size_t failed : {size_t{0}, size_t{1}}) {
      World world;
      world.Load(/*has_second_part=*/true);
      TableApplier applier("m/t", world.registry, world.store);
      ASSERT_TRUE(World::Upsert(applier, {1, 2}, 1).ok());
      world.Promote({1, 2});
      (failed == 0 ? world.l2_faults : world.second_l2_faults).Plan(failing, {.times = 1});
      ASSERT_TRUE(World::Upsert(applier, {1}, 2).ok()) << "a failed part fails no change";
      EXPECT_TRUE(world.live().l2()[failed].health().quarantined());
      EXPECT_FALSE(world.live().l2()[1 - failed].health().quarantined());
      EXPECT_EQ(world.InL2(1, 1 - failed), 2);
      ASSERT_TRUE(World::Upsert(applier, {2}, 3).ok());
      EXPECT_FALSE(world.live().l2()[failed].health().quarantined());
      EXPECT_EQ(world.InL2(1, failed), World::kMissing) << "it was cleared";
      EXPECT_EQ(world.InL2(2, 1 - failed), 3);
      ASSERT_TRUE(World::Delete(applier, {2}).ok());
      for (const size_t part : {0, 1}) EXPECT_EQ(world.InL2(2, part), World::kMissing);
    }
  }
}

TEST_F(LevelRepairTest, ALevel1ThatMissedAChangeIsBypassedUntilItIsCleared) {
  for (const TierOperation failing :
       {TierOperation::kUpdate, TierOperation::kRaiseWatermarks, TierOperation::kFlush}) {
    World world;
    world.Load();
    TableApplier applier("m/t", world.registry, world.store);
    ASSERT_TRUE(World::Upsert(applier, {1, 2}, 1).ok());
    world.Promote({1, 2});
    world.l1_faults.Plan(failing, {.times = 1});
    ASSERT_TRUE(World::Upsert(applier, {1}, 2).ok());
    EXPECT_TRUE(world.live().l1_health(0).quarantined());
    ASSERT_TRUE(World::Upsert(applier, {2}, 3).ok());
    EXPECT_FALSE(world.live().l1_health(0).quarantined());
    EXPECT_EQ(world.InL1(1), World::kMissing) << "it was cleared";
  }
}

}  // namespace
}  // namespace hps
