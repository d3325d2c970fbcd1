#include "update/table_applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "testing/await.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using ::testing::HasSubstr;
using World = UpdateWorld;
constexpr float kAbsent = World::kAbsent;
constexpr float kMissing = World::kMissing;

class TableApplierTest : public ::testing::Test {
 protected:
  absl::Status Upsert(const std::vector<Key>& keys, float value) {
    return World::Upsert(applier_, keys, value);
  }
  absl::Status Delete(const std::vector<Key>& keys) { return World::Delete(applier_, keys); }
  // Records of a stream up to `offset`.
  absl::Status Stream(const std::vector<Key>& keys, float value, uint64_t offset) {
    std::vector<std::byte> rows = World::Rows(keys.size(), value);
    const std::vector<Version> versions(keys.size(), VersionAt(1, offset));
    const StreamPosition position = {.offset = offset + 1};
    return ApplyStream(applier_,
                       {.upserts = {.keys = keys, .rows = World::View(rows), .versions = versions},
                        .positions = {&position, 1}});
  }
  absl::Status ApplyStream(TableApplier& applier, const DurableWrite& write) {
    return applier.ApplyStream(
        {.incarnation = (*world_.store.OpenTable("m/t"))->incarnation(), .write = write},
        World::Soon());
  }

  // Level 3 alone has the row: only a full refresh brings it to level 1.
  void WriteBehindLevel1(Key key, float value) {
    std::vector<std::byte> rows = World::Rows(1, value);
    const DurableWrite write = {.upserts = {.keys = {&key, 1}, .rows = World::View(rows)}};
    ASSERT_TRUE(world_.live().l3().Write(write).ok());
    ASSERT_TRUE(world_.live().l2()[0].table().Clear().ok());
  }

  World world_;
  TableApplier applier_{"m/t", world_.registry, world_.store};
};

// With the number of the device that fails; the other one is healthy.
class TwoDevicesTest : public TableApplierTest, public ::testing::WithParamInterface<size_t> {
 protected:
  TwoDevicesTest() {
    world_.LoadOnTwoDevices();
    EXPECT_TRUE(Stream({1}, 1, 1).ok());
    world_.Promote({1});
  }
  LevelHealth& health(size_t cache) { return world_.live().l1_health(cache); }

  const size_t failing_ = GetParam();
  const size_t healthy_ = 1 - failing_;
  TierFaults& faults_ = failing_ == 0 ? world_.l1_faults : world_.other_l1_faults;
  TierFaults& healthy_faults_ = failing_ == 0 ? world_.other_l1_faults : world_.l1_faults;
};

INSTANTIATE_TEST_SUITE_P(Each, TwoDevicesTest, ::testing::Values(0, 1));

// Would catch a full refresh that ends at the device that fails, now and each time that it goes on.
TEST_P(TwoDevicesTest, AFullRefreshGoesOnWithTheOther) {
  for (const TierOperation dead :
       {TierOperation::kDump, TierOperation::kRaiseWatermarks, TierOperation::kFlush})
    faults_.Plan(dead, {});
  for (const float value : {7.0F, 8.0F}) {
    WriteBehindLevel1(1, value);
    ASSERT_EQ(applier_.RefreshAll(World::Soon()), absl::OkStatus());
    EXPECT_EQ(world_.InL1(1, healthy_), value);
    EXPECT_FALSE(health(healthy_).quarantined());
    EXPECT_TRUE(health(failing_).quarantined());
    EXPECT_TRUE(applier_.needs_refresh()) << "it is still to be cleared";
  }
  EXPECT_EQ(faults_.calls(TierOperation::kDump), 1) << "it is asked no more";
  ASSERT_TRUE(Stream({1}, 9, 2).ok());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1, healthy_), 9);
  faults_.Clear();
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_FALSE(health(failing_).quarantined());
  EXPECT_EQ(world_.InL1(1, failing_), World::kMissing);
  EXPECT_FALSE(applier_.needs_refresh());
}

// Would catch one deadline for all levels: those behind a device that hangs would get an expired
// one, and lose their rows.
TEST_P(TwoDevicesTest, ADeviceThatHangsLeavesTheOtherLevelsTheirTime) {
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
TEST_P(TwoDevicesTest, ADeviceThatHangsIsLeftAloneForAWhile) {
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

TEST_P(TwoDevicesTest, TheWarningNamesTheDevice) {
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
  EXPECT_THAT(log, HasSubstr(expected));
}

TEST_F(TableApplierTest, ADirectChangeShowsInEveryLevel) {
  world_.Load();
  ASSERT_TRUE(Upsert({1, 2}, 10).ok());
  world_.Promote({1, 2});
  ASSERT_TRUE(Upsert({2, 3}, 20).ok());
  EXPECT_EQ(world_.InL3(1), 10);
  for (const float row : {world_.InL1(2), world_.InL2(2), world_.InL3(2)}) EXPECT_EQ(row, 20);
  EXPECT_EQ(world_.InL3(3), 20);
  EXPECT_EQ(world_.InL2(3), kMissing) << "a change inserts nothing";
  EXPECT_EQ(world_.InL1(3), kMissing);
  ASSERT_TRUE(Delete({1}).ok());
  EXPECT_EQ(world_.InL1(1), kMissing);
  EXPECT_EQ(world_.InL2(1), kMissing);
  EXPECT_EQ(world_.InL3(1), kAbsent);
  EXPECT_FALSE(applier_.needs_refresh());
  EXPECT_EQ(applier_.counts().changes, 3);
  EXPECT_EQ(applier_.counts().rows_upserted, 4);
  EXPECT_EQ(applier_.counts().rows_deleted, 1);
}

TEST_F(TableApplierTest, ATableThatIsNotLoadedIsWrittenInLevel3) {
  ASSERT_TRUE(Upsert({1}, 10).ok());
  world_.Load();
  EXPECT_EQ(world_.InL3(1), 10);
  ASSERT_TRUE(Upsert({1}, 11).ok());
  EXPECT_EQ(world_.InL3(1), 11);
}

TEST_F(TableApplierTest, RefusesWhatIsNoChangeOfTheTable) {
  world_.Load();
  const std::vector<Key> keys = {1};
  const auto apply = [&](const TableApplier::DirectChange& change) {
    return applier_.ApplyDirect(change, World::Soon());
  };
  const std::vector<std::byte> rows = World::Rows(1, 1);
  for (const auto& [status, text] : std::vector<std::pair<absl::Status, std::string>>{
           {apply({.dim = 3, .keys = keys, .rows = rows}), "dim 3, the table has dim 2"},
           {apply({.dim = 2, .dtype = Dtype::kFloat16, .keys = keys, .rows = rows}),
            "float16, the table has float32"},
           {apply({.dim = 2, .keys = keys, .rows = World::Rows(2, 1)}), "need 8 bytes"},
           {apply({.keys = keys, .rows = rows, .is_delete = true}), "keys only"}}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  EXPECT_EQ(world_.InL3(1), kAbsent);
  EXPECT_TRUE(Upsert({}, 1).ok()) << "nothing is no error";
  EXPECT_TRUE(Upsert({7}, std::numeric_limits<float>::infinity()).ok());
  TableApplier other("m/other", world_.registry, world_.store);
  EXPECT_EQ(World::Upsert(other, {1}, 1).code(), absl::StatusCode::kNotFound);
}

// The first change decides; a restart does not change that, an import does.
TEST_F(TableApplierTest, ATableHasOneSourceUntilItsNextImport) {
  ASSERT_TRUE(Upsert({1}, 1).ok());
  TableApplier restarted("m/t", world_.registry, world_.store);
  std::vector<std::byte> rows = World::Rows(1, 5);
  const Key key = 1;
  const StreamPosition position = {.offset = 9};
  const DurableWrite write = {.upserts = {.keys = {&key, 1}, .rows = World::View(rows)},
                              .positions = {&position, 1}};
  const absl::Status refused = ApplyStream(restarted, write);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("direct changes"));
  world_.store.Replace();
  EXPECT_EQ(restarted.ApplyStream({.incarnation = 1, .write = write}, World::Soon()).code(),
            absl::StatusCode::kFailedPrecondition)
      << "of a former import";
  ASSERT_TRUE(ApplyStream(restarted, write).ok());
  const absl::Status direct = Upsert({1}, 2);
  EXPECT_EQ(direct.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(direct.message()), HasSubstr("the update stream"));
}

// Would catch a counter that begins again after a restart: level 2 would keep the older row.
TEST_F(TableApplierTest, TheCounterOfDirectChangesIsKeptInLevel3) {
  ASSERT_TRUE(Upsert({1}, 1).ok());
  ASSERT_TRUE(Upsert({1}, 2).ok());
  world_.Load();
  world_.Promote({1});
  TableApplier restarted("m/t", world_.registry, world_.store);
  ASSERT_TRUE(World::Upsert(restarted, {1}, 3).ok());
  EXPECT_EQ(world_.InL2(1), 3);
  EXPECT_EQ((*world_.live().l3().Positions())[0], (StreamPosition{0, kDirectGeneration, 4}));
}

TEST_F(TableApplierTest, AStreamReachesLevel1WithTheNextRefresh) {
  world_.Load();
  ASSERT_TRUE(Stream({1, 2}, 1, 10).ok());
  world_.Promote({1, 2});
  ASSERT_TRUE(Stream({1}, 2, 11).ok());
  EXPECT_EQ(world_.InL2(1), 2);
  EXPECT_EQ(world_.InL1(1), 1);
  EXPECT_TRUE(applier_.needs_refresh());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 2);
  EXPECT_FALSE(applier_.needs_refresh());
}

TEST_F(TableApplierTest, AFullRefreshReadsEveryHeldKeyAgain) {
  world_.Load();
  ASSERT_TRUE(Stream({1, 2, 3}, 1, 10).ok());
  world_.Promote({1, 2, 3});
  std::vector<std::byte> rows = World::Rows(1, 7);
  const Key changed = 2, deleted = 3;
  ASSERT_TRUE(world_.live()
                  .l3()
                  .Write({.upserts = {.keys = {&changed, 1}, .rows = World::View(rows)},
                          .deletes = {&deleted, 1}})
                  .ok());
  ASSERT_TRUE(world_.live().l2()[0].table().Clear().ok());
  ASSERT_TRUE(applier_.RefreshAll(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 1);
  EXPECT_EQ(world_.InL1(2), 7);
  EXPECT_EQ(world_.InL1(3), kMissing);
}

// More changed keys than are noted: everything is refreshed.
TEST_F(TableApplierTest, TooManyChangedKeysBecomeAFullRefresh) {
  world_.Load();
  ASSERT_TRUE(Stream({1}, 1, 1).ok());
  world_.Promote({1});
  ASSERT_TRUE(Stream({1}, 2, 2).ok());
  std::vector<Key> keys(TableApplier::kChangedKeysMax);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(100 + i);
  const StreamPosition position = {.offset = 4};
  ASSERT_TRUE(ApplyStream(applier_, {.deletes = keys, .positions = {&position, 1}}).ok());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 2);
  EXPECT_FALSE(applier_.needs_refresh());
}

TEST_F(TableApplierTest, APromotionFromBeforeAChangeIsRefused) {
  world_.Load();
  ASSERT_TRUE(Upsert({1}, 1).ok());
  const ApplyEpoch before = world_.live().epochs().published();
  std::vector<std::byte> old_row = World::Rows(1, 1);
  const Key key = 1;
  ASSERT_TRUE(Upsert({1}, 2).ok());
  const RowBatch promotion = {.keys = {&key, 1}, .rows = World::View(old_row)};
  ASSERT_TRUE(world_.live().l2()[0].table().Insert(promotion, before).ok());
  ASSERT_TRUE(world_.live().l1(0)->InsertIfAbsent(promotion, before).ok());
  EXPECT_EQ(world_.InL2(1), kMissing);
  EXPECT_EQ(world_.InL1(1), kMissing);
}

// Level 3 may show the row of a failed change: the others must not show the old one after it.
TEST_F(TableApplierTest, AFailureOfLevel3TakesTheKeysFromLevel2) {
  world_.Load();
  ASSERT_TRUE(Upsert({1}, 1).ok());
  world_.Promote({1});
  world_.store.faults.Plan(
      TierOperation::kWrite,
      {.fault = TierFault::kFailLate, .status = absl::ResourceExhaustedError("full"), .times = 1});
  EXPECT_EQ(Upsert({1}, 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(world_.InL2(1), kMissing);
  EXPECT_EQ(applier_.counts().changes_failed, 1);
  world_.Promote({1});
  EXPECT_EQ(world_.InL2(1), 2) << "what level 3 shows now";
  ASSERT_TRUE(Upsert({1}, 3).ok());
  EXPECT_EQ(world_.InL2(1), 3) << "the repeated change has a newer version";
  EXPECT_EQ(world_.InL1(1), 3);
}

TEST_F(TableApplierTest, ALevel2ThatMissedAChangeIsBypassedUntilItIsCleared) {
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
    EXPECT_EQ(world.InL2(1), kMissing) << "it was cleared";
  }
}

// Each part of level 2 by itself: the other one goes on.
TEST_F(TableApplierTest, OfALevel2OfTwoPartsOneThatMissedAChangeIsBypassed) {
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
      EXPECT_EQ(world.InL2(1, failed), kMissing) << "it was cleared";
      EXPECT_EQ(world.InL2(2, 1 - failed), 3);
      ASSERT_TRUE(World::Delete(applier, {2}).ok());
      for (const size_t part : {0, 1}) EXPECT_EQ(world.InL2(2, part), kMissing);
    }
  }
}

// Lookups that miss in the first part must not find an older row below than it had.
TEST_F(TableApplierTest, TheFirstPartOfALevel2IsChangedLast) {
  World world;
  world.Load(/*has_second_part=*/true);
  TableApplier applier("m/t", world.registry, world.store);
  ASSERT_TRUE(World::Upsert(applier, {1}, 1).ok());
  world.Promote({1});
  float in_first = kMissing, in_level_3 = kMissing;
  world.second_l2_faults.Plan(TierOperation::kUpdate,
                              {.fault = TierFault::kNone, .times = 1, .before = [&] {
                                 in_first = world.InL2(1);
                                 in_level_3 = world.InL3(1);
                               }});
  ASSERT_TRUE(World::Upsert(applier, {1}, 2).ok());
  EXPECT_EQ(in_first, 1);
  EXPECT_EQ(in_level_3, 2);
  for (const size_t part : {0, 1}) EXPECT_EQ(world.InL2(1, part), 2);
}

TEST_F(TableApplierTest, ALevel1ThatMissedAChangeIsBypassedUntilItIsCleared) {
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
    EXPECT_EQ(world.InL1(1), kMissing) << "it was cleared";
  }
}

// If the rows can't be read, level 1 may hold the old ones: it is bypassed until a refresh.
TEST_F(TableApplierTest, ALevel1ThatCouldNotBeRefreshedIsBypassed) {
  world_.Load();
  ASSERT_TRUE(Upsert({1}, 1).ok());
  world_.Promote({1});
  ASSERT_TRUE(world_.live().l2()[0].table().Clear().ok());
  world_.store.faults.Plan(TierOperation::kFetch, {.times = 1});
  ASSERT_TRUE(Upsert({1}, 2).ok());
  EXPECT_TRUE(world_.live().l1_health(0).quarantined());
  EXPECT_TRUE(applier_.needs_refresh());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_FALSE(world_.live().l1_health(0).quarantined());
  EXPECT_EQ(world_.InL1(1), 2);
}

TEST_F(TableApplierTest, WaitsForASwitchAndGoesOnWithTheNewTable) {
  world_.Load();
  ASSERT_TRUE(Upsert({1}, 1).ok());
  world_.store.Replace();
  const absl::Status between = Upsert({1}, 2);
  EXPECT_EQ(between.code(), absl::StatusCode::kUnavailable) << "imported, but not loaded yet";
  {
    const auto switching = world_.registry.BlockWriters("m", World::Soon());
    ASSERT_TRUE(switching.ok());
    EXPECT_EQ(
        applier_.ApplyDirect({.is_delete = true}, DeadlineAfter(RealClock(), Duration(1))).code(),
        absl::StatusCode::kUnavailable);
    world_.Load();
  }
  ASSERT_TRUE(Upsert({1}, 3).ok());
  EXPECT_EQ(world_.InL3(1), 3);
}

// Random changes, promotions, evictions and faults against a plain map. No level that lookups may
// use shows anything but the last value, level 1 of a stream being excused until its refresh.
TEST_F(TableApplierTest, RandomChangesAgainstAPlainMap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    World world;
    world.Load();
    TableApplier applier("m/t", world.registry, world.store);
    std::mt19937_64 random(seed);
    const std::vector<TierOperation> failing = {TierOperation::kUpdate, TierOperation::kErase,
                                                TierOperation::kRaiseWatermarks,
                                                TierOperation::kClear, TierOperation::kFlush};
    world.l2_faults.PlanBySeed(seed, failing, {.fail = 0.05, .fail_late = 0.05});
    world.l1_faults.PlanBySeed(seed + 1000, failing, {.fail = 0.03, .fail_late = 0.03});
    std::map<Key, float> truth;
    for (int step = 1; step <= 300; ++step) {
      std::vector<Key> keys;
      for (size_t n = 1 + random() % 6; n > 0; --n) keys.push_back(static_cast<Key>(random() % 40));
      switch (random() % 4) {
        case 0:
          ASSERT_TRUE(World::Delete(applier, keys).ok());
          for (const Key key : keys) truth.erase(key);
          break;
        case 1: {
          std::vector<Key> present;
          for (const Key key : keys) {
            if (truth.contains(key)) present.push_back(key);
          }
          world.l1_faults.Clear();
          if (!present.empty()) world.Promote(present);
          world.l1_faults.PlanBySeed(seed * 1000 + static_cast<uint64_t>(step), failing,
                                     {.fail = 0.03, .fail_late = 0.03});
          break;
        }
        default:
          ASSERT_TRUE(World::Upsert(applier, keys, static_cast<float>(step)).ok());
          for (const Key key : keys) truth[key] = static_cast<float>(step);
      }
      const auto key = static_cast<Key>(random() % 40);
      const float expected = truth.contains(key) ? truth[key] : kAbsent;
      ASSERT_EQ(world.InL3(key), expected) << "seed " << seed << " step " << step;
      if (const float row = world.InL2(key);
          row != kMissing && !world.live().l2()[0].health().quarantined()) {
        ASSERT_EQ(row, expected) << "seed " << seed << " step " << step;
      }
      if (const float row = world.InL1(key);
          row != kMissing && !world.live().l1_health(0).quarantined()) {
        ASSERT_EQ(row, expected) << "seed " << seed << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace hps
