#include "update/table_applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <string>

#include "base/public_message.h"
#include "update/test_applier.h"

namespace hps {
namespace {

using ::testing::HasSubstr;
using World = UpdateWorld;
constexpr float kAbsent = World::kAbsent;
constexpr float kMissing = World::kMissing;

using TableApplierTest = ApplierTest;

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

TEST_F(TableApplierTest, Float32BecomesTheNearestValuesOfATableOf16Bits) {
  OneTableStore store(TableSpec{.name = "m/t", .dim = World::kDim, .dtype = Dtype::kBfloat16});
  TableApplier applier("m/t", world_.registry, store);
  const auto bits_of = [&store](Key key) {
    uint32_t bits = 0;
    FetchOutcome outcome = FetchOutcome::kMiss;
    const HostRows row = {std::as_writable_bytes(std::span(&bits, 1)).data(), 1, 4, 4};
    EXPECT_TRUE(
        (*store.OpenTable("m/t"))
            ->Fetch({.keys = {&key, 1}, .rows = row, .outcomes = {&outcome, 1}}, kNoDeadline)
            .ok());
    return outcome == FetchOutcome::kHit ? bits : 0;
  };
  ASSERT_TRUE(World::Upsert(applier, {1, 2}, 1.004F).ok());
  for (const Key key : {1, 2}) EXPECT_EQ(bits_of(key), 0x3f813f81U);
  ASSERT_TRUE(World::Upsert(applier, {1}, -std::numeric_limits<float>::infinity()).ok());
  EXPECT_EQ(bits_of(1), 0xff80ff80U) << "as given";
  const absl::Status large = World::Upsert(applier, {2}, std::numeric_limits<float>::max());
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(IsPublic(large));
  EXPECT_EQ(large.message(), "table 'm/t': 2 elements of the rows are too large for bfloat16");
  EXPECT_EQ(bits_of(2), 0x3f813f81U);
  const std::vector<Key> keys = {2};
  const std::vector<std::byte> packed(2 * sizeof(uint16_t));
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16}) {
    EXPECT_EQ(applier
                  .ApplyDirect({.dim = World::kDim, .dtype = dtype, .keys = keys, .rows = packed},
                               World::Soon())
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(World::Delete(applier, {2}).ok());
  EXPECT_EQ(bits_of(2), 0U);
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
