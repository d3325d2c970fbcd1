#include "update/update_service.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/unix_time.h"
#include "testing/await.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using World = UpdateWorld;

class UpdateServiceTest : public ::testing::Test {
 protected:
  UpdateServiceTest() {
    world_.Load();
    service_ = *UpdateService::Create({.registry = &world_.registry,
                                       .store = &world_.store,
                                       .refresh_interval = std::chrono::milliseconds(1)});
  }
  World world_;
  std::unique_ptr<UpdateService> service_;
};

TEST_F(UpdateServiceTest, AChangeIsSyncedBeforeItIsAcknowledged) {
  const std::vector<Key> keys = {1};
  const std::vector<std::byte> rows = World::Rows(1, 5);
  const TableApplier::DirectChange change = {.dim = World::kDim, .keys = keys, .rows = rows};
  ASSERT_TRUE(service_->Apply("m/t", change, World::Soon()).ok());
  EXPECT_EQ(world_.InL3(1), 5);
  EXPECT_EQ(world_.store.syncs, 1);
  EXPECT_EQ(service_->Statistics().rows_upserted, 1);
  EXPECT_EQ(service_->Apply("m/x", change, World::Soon()).code(), absl::StatusCode::kNotFound);
  world_.store.on_sync = [] { return absl::UnavailableError("disk"); };
  EXPECT_EQ(service_->Apply("m/t", change, World::Soon()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(UpdateServiceTest, LevelOneFollowsAStreamByItself) {
  TableApplier* const applier = *service_->ApplierOf("m/t");
  EXPECT_EQ(applier, *service_->ApplierOf("m/t"));
  const auto stream = [&](float value, uint64_t offset) {
    std::vector<std::byte> rows = World::Rows(1, value);
    const Key key = 1;
    const Version version = VersionAt(1, offset);
    const StreamPosition position = {.offset = offset + 1};
    const int64_t now_us = UnixMicroseconds();
    const DurableWrite write = {
        .upserts = {.keys = {&key, 1}, .rows = World::View(rows), .versions = {&version, 1}},
        .positions = {&position, 1}};
    EXPECT_TRUE(applier
                    ->ApplyStream({.incarnation = world_.live().l3().incarnation(),
                                   .write = write,
                                   .publish_times_us = {&now_us, 1}},
                                  World::Soon())
                    .ok());
  };
  stream(1, 0);
  world_.Promote({1});
  stream(2, 1);
  ASSERT_TRUE(AwaitCondition([&] { return !applier->needs_refresh(); }));
  EXPECT_EQ(world_.InL1(1), 2);
  const UpdateStatistics statistics = service_->Statistics();
  EXPECT_GE(statistics.rows_refreshed, 1);
  for (const FreshnessHistogram& level :
       {statistics.l1_freshness, statistics.l2_freshness, statistics.l3_freshness}) {
    EXPECT_EQ(std::accumulate(level.counts.begin(), level.counts.end(), uint64_t{0}), 2);
  }
}

TEST_F(UpdateServiceTest, RefreshesAModelOnRequest) {
  EXPECT_TRUE(service_->RefreshModel("m", World::Soon()).ok());
  EXPECT_EQ(service_->RefreshModel("n", World::Soon()).code(), absl::StatusCode::kNotFound);
  Latch begun(1);
  Latch released(1);
  world_.l1_faults.Plan(TierOperation::kDump, {.fault = TierFault::kNone, .before = [&] {
                                                 begun.CountDown();
                                                 EXPECT_TRUE(AwaitLatch(released));
                                               }});
  std::thread first([&] { EXPECT_TRUE(service_->RefreshModel("m", World::Soon()).ok()); });
  ASSERT_TRUE(AwaitLatch(begun));
  EXPECT_EQ(service_->RefreshModel("m", World::Soon()).code(),
            absl::StatusCode::kFailedPrecondition);
  world_.l1_faults.Clear();
  released.CountDown();
  first.join();
}

}  // namespace
}  // namespace hps
