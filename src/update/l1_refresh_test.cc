#include "update/l1_refresh.h"

#include <gtest/gtest.h>

#include <functional>

#include "update/test_applier.h"

namespace hps {
namespace {

using World = UpdateWorld;

class L1RefreshTest : public ApplierTest {
 protected:
  // Called before a step gets the lease; an error is the lease's.
  std::function<absl::Status()> before_step_ = [] { return absl::OkStatus(); };
  LevelRepair levels_{"m/t"};
  L1Refresh refresh_{{.table = "m/t",
                      .acquire = [this](Deadline deadline) -> absl::StatusOr<WriteLease> {
                        if (absl::Status status = before_step_(); !status.ok()) return status;
                        return world_.registry.AcquireWriter("m/t", deadline);
                      },
                      .levels = &levels_}};
};

using L1RefreshOnTwoDevicesTest = TwoDevicesTest;

INSTANTIATE_TEST_SUITE_P(Each, L1RefreshOnTwoDevicesTest, ::testing::Values(0, 1));

TEST_F(L1RefreshTest, OneFullRefreshRunsAtATime) {
  world_.Load();
  absl::Status second;
  before_step_ = [&] {
    second = refresh_.RefreshAll(World::Soon());
    return absl::OkStatus();
  };
  EXPECT_TRUE(refresh_.RefreshAll(World::Soon()).ok());
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.message(), "table 'm/t': a full refresh is running");
}

// Catches: a full refresh that ends half way, and nobody goes on with it.
TEST_F(L1RefreshTest, AFullRefreshThatEndsWithAnErrorIsGoneOnWith) {
  world_.Load();
  ASSERT_TRUE(Stream({1}, 1, 1).ok());
  world_.Promote({1});
  WriteBehindLevel1(1, 7);
  int steps = 0;
  before_step_ = [&] {
    return ++steps == 2 ? absl::UnavailableError("a switch") : absl::OkStatus();
  };
  EXPECT_EQ(refresh_.RefreshAll(World::Soon()).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(refresh_.is_needed());
  ASSERT_TRUE(refresh_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 7);
  EXPECT_FALSE(refresh_.is_needed());
}

// It was filled with current rows.
TEST_F(L1RefreshTest, AFullRefreshEndsWhenTheTableIsReplaced) {
  world_.Load();
  world_.Promote({1});
  int steps = 0;
  before_step_ = [&] {
    if (++steps == 2) refresh_.Reset();
    return absl::OkStatus();
  };
  EXPECT_TRUE(refresh_.RefreshAll(World::Soon()).ok());
  EXPECT_EQ(steps, 2);
  EXPECT_FALSE(refresh_.is_needed());
}

TEST_F(L1RefreshTest, NotedKeysAreNotLostByAnError) {
  world_.Load();
  ASSERT_TRUE(Stream({1}, 1, 1).ok());
  world_.Promote({1});
  WriteBehindLevel1(1, 7);
  refresh_.Note(world_.live(), std::vector<Key>{1});
  world_.store.faults.Plan(TierOperation::kFetch, {.times = 1});
  EXPECT_FALSE(refresh_.RefreshChanged(World::Soon()).ok());
  EXPECT_TRUE(refresh_.is_needed());
  ASSERT_TRUE(refresh_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 7);
  EXPECT_EQ(refresh_.rows_refreshed(), 1u);
}

TEST_F(L1RefreshTest, ATableThatIsNotLoadedHasNothingToRefresh) {
  EXPECT_FALSE(refresh_.is_needed());
  EXPECT_TRUE(refresh_.RefreshChanged(World::Soon()).ok());
  EXPECT_TRUE(refresh_.RefreshAll(World::Soon()).ok());
  EXPECT_FALSE(refresh_.is_needed());
}

TEST_F(L1RefreshTest, SomeWorkersAreLeftToLookups) {
  for (const auto& [workers, helpers] :
       std::vector<std::pair<size_t, size_t>>{{0, 1}, {1, 1}, {8, 6}, {1000, kHelpersMax}})
    EXPECT_EQ(L1Refresh::Helpers(workers), helpers);
}

// Would catch a full refresh that ends at the device that fails, now and each time that it goes on.
TEST_P(L1RefreshOnTwoDevicesTest, AFullRefreshGoesOnWithTheOther) {
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

TEST_F(L1RefreshTest, AStreamReachesLevel1WithTheNextRefresh) {
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

TEST_F(L1RefreshTest, AFullRefreshReadsEveryHeldKeyAgain) {
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
  EXPECT_EQ(world_.InL1(3), World::kMissing);
}

// More changed keys than are noted: everything is refreshed.
TEST_F(L1RefreshTest, TooManyChangedKeysBecomeAFullRefresh) {
  world_.Load();
  ASSERT_TRUE(Stream({1}, 1, 1).ok());
  world_.Promote({1});
  ASSERT_TRUE(Stream({1}, 2, 2).ok());
  std::vector<Key> keys(NotedKeys::kKeysMax);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(100 + i);
  const StreamPosition position = {.offset = 4};
  ASSERT_TRUE(ApplyStream(applier_, {.deletes = keys, .positions = {&position, 1}}).ok());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 2);
  EXPECT_FALSE(applier_.needs_refresh());
}

// If the rows can't be read, level 1 may hold the old ones: it is bypassed until a refresh.
TEST_F(L1RefreshTest, ALevel1ThatCouldNotBeRefreshedIsBypassed) {
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

// Catches: a full refresh drops the keys that were noted, and the next direct change takes level 1
// for complete although the refresh has not reached them.
TEST_F(L1RefreshTest, ADirectChangeDoesNotEndTheQuarantineOfAFullRefresh) {
  world_.Load();
  ASSERT_TRUE(Upsert({1}, 1).ok());
  world_.Promote({1});
  ASSERT_TRUE(world_.live().l2()[0].table().Clear().ok());
  world_.store.faults.Plan(TierOperation::kFetch, {.times = 1});
  ASSERT_TRUE(Upsert({1}, 2).ok());
  ASSERT_TRUE(world_.live().l1_health(0).quarantined());
  world_.store.faults.Plan(TierOperation::kFetch, {.times = 1});
  ASSERT_FALSE(applier_.RefreshAll(World::Soon()).ok());
  ASSERT_TRUE(Upsert({3}, 5).ok());
  EXPECT_TRUE(world_.live().l1_health(0).quarantined());
  ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
  EXPECT_FALSE(world_.live().l1_health(0).quarantined());
  EXPECT_EQ(world_.InL1(1), 2);
}

// Catches: a full refresh that finds the table busy is forgotten.
TEST_F(L1RefreshTest, AFullRefreshThatGetsNoLeaseIsDoneByTheNextCycle) {
  world_.Load();
  ASSERT_TRUE(Stream({1}, 1, 1).ok());
  world_.Promote({1});
  WriteBehindLevel1(1, 7);
  bool is_busy = true;
  before_step_ = [&] { return is_busy ? absl::UnavailableError("a switch") : absl::OkStatus(); };
  EXPECT_EQ(refresh_.RefreshAll(World::Soon()).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(refresh_.is_needed());
  is_busy = false;
  ASSERT_TRUE(refresh_.RefreshChanged(World::Soon()).ok());
  EXPECT_EQ(world_.InL1(1), 7);
  EXPECT_FALSE(refresh_.is_needed());
}

}  // namespace
}  // namespace hps
