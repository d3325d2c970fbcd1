#include "query/fetch/cancel_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "query/test_query_world.h"

namespace hps {
namespace {

using testing::Each;

constexpr Duration kHour = std::chrono::hours(1);

class CancelPointTest : public testing::Test {
 protected:
  void Serve(WorldTableOptions options, size_t key_count) {
    keys_.resize(key_count);
    std::iota(keys_.begin(), keys_.end(), Key{0});
    options.keys = keys_;
    table_ = MakeWorldTable(options, nullptr);
    world_.Publish({&table_});
    session_ = world_.NewSession();
  }
  WorldAnswer AskAll() { return Ask(*session_, keys_, 0, {.timeout = kHour, .cancel = &cancel_}); }
  static size_t CountOf(const WorldAnswer& answer, KeyStatus status) {
    return static_cast<size_t>(std::count(answer.statuses.begin(), answer.statuses.end(), status));
  }

  std::vector<Key> keys_;
  WorldTable table_;
  World world_;
  LookupCancel cancel_;
  std::unique_ptr<LookupSession> session_;
};

TEST_F(CancelPointTest, ACancelledLookUpTakesWhatIsNear) {
  Serve({}, 4);
  cancel_.Cancel();
  const TimePoint begun = world_.executor().clock().Now();
  const WorldAnswer cancelled = AskAll();
  EXPECT_TRUE(cancelled.status.ok());
  EXPECT_THAT(cancelled.statuses, Each(KeyStatus::kDefaultDegraded));
  EXPECT_EQ(table_.l3_log->keys_fetched, 0) << "nothing below is asked any more";
  EXPECT_EQ(world_.executor().clock().Now(), begun);
  EXPECT_EQ(world_.statistics().deadlines_exceeded, 0u);

  cancel_.Reset();
  EXPECT_FALSE(cancel_.is_cancelled());
  EXPECT_THAT(AskAll().statuses, Each(KeyStatus::kHitL3));
}

TEST_F(CancelPointTest, ACancelEndsTheWaitAndLateRowsAreKeptForOthers) {
  Serve({}, 1000);
  table_.l3_faults->Plan(TierOperation::kFetch,
                         {.fault = TierFault::kNone, .before = [&] { cancel_.Cancel(); }});
  const TimePoint begun = world_.executor().clock().Now();
  const WorldAnswer cancelled = AskAll();
  EXPECT_EQ(world_.executor().clock().Now(), begun) << "it did not wait for its hour";
  const size_t come = CountOf(cancelled, KeyStatus::kHitL3);
  EXPECT_GT(come, 0u);
  EXPECT_GT(CountOf(cancelled, KeyStatus::kDefaultDegraded), 0u);
  EXPECT_EQ(come + CountOf(cancelled, KeyStatus::kDefaultDegraded), keys_.size());

  table_.l3_faults->Clear();
  cancel_.Reset();
  world_.executor().RunAll();  // what was left behind ends, in memory of its own
  EXPECT_THAT(AskAll().statuses, Each(KeyStatus::kHitL2));
}

// A client that goes away is no failure of a level: it must not be able to switch one off.
TEST_F(CancelPointTest, ACancelledWaitForL2DoesNotPassItBy) {
  Serve({.l2_blocks = true}, 1000);
  AskAll();
  world_.executor().RunAll();
  table_.l2_faults->Plan(TierOperation::kFetch,
                         {.fault = TierFault::kNone, .before = [&] { cancel_.Cancel(); }});
  const WorldAnswer cancelled = AskAll();
  EXPECT_GT(CountOf(cancelled, KeyStatus::kDefaultDegraded), 0u);
  EXPECT_EQ(CountOf(cancelled, KeyStatus::kHitL3), 0u);
  table_.l2_faults->Clear();
  world_.executor().RunAll();
  cancel_.Reset();
  EXPECT_THAT(AskAll().statuses, Each(KeyStatus::kHitL2));
  EXPECT_EQ(world_.statistics().tables[0].l2.errors, 0);
}

TEST_F(CancelPointTest, AnotherThreadEndsAWaitWithoutDeadline) {
  auto pool = WorkerPool::Create({.name = "t"});
  ASSERT_TRUE(pool.ok());
  CancelPoint point;
  Latch never(1);
  std::thread canceller([&] { point.Cancel(); });
  EXPECT_FALSE(CancelPoint::Await(&point, **pool, never, kNoDeadline));
  canceller.join();
  point.Reset();
  never.CountDown();
  EXPECT_TRUE(CancelPoint::Await(&point, **pool, never, kNoDeadline));
  EXPECT_TRUE(CancelPoint::Await(nullptr, **pool, never, kNoDeadline));
}

}  // namespace
}  // namespace hps
