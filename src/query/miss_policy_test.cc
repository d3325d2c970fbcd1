// What is said of a default row that stands in for a real one: pending only where a level takes it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "query/fetch/fetch_service.h"
#include "query/test_query_world.h"

namespace hps {
namespace {

class MissPolicyTest : public testing::Test {
 protected:
  WorldTable& Make(WorldTableOptions options) {
    for (Key key = 0; key < 100; ++key) options.keys.push_back(key);
    table_ = MakeWorldTable(options, nullptr);
    return table_;
  }
  void Serve(const WorldTable& table) {
    world_.Publish({&table});
    session_ = world_.NewSession();
  }

  WorldTable table_;  // what the world's levels borrow from outlives it
  World world_;
  std::unique_ptr<LookupSession> session_;
};

// Catches: a background fetch that is bounded by the callers' patience, so that with a timeout of
// zero L2 never gets anything.
TEST_F(MissPolicyTest, FetchingInTheBackgroundHasABoundOfItsOwn) {
  World world(0, {}, {.timeout = Duration::zero()});
  const WorldTable& a = Make({});
  world.Publish({&a});
  const auto session = world.NewSession();
  const HostLookupRequest in_background{.hit_rate_threshold = 0.0};
  EXPECT_EQ(Ask(*session, {1}, 0, in_background).statuses[0], KeyStatus::kDefaultPending);
  world.executor().manual_clock().Advance(std::chrono::hours(1));  // waiting costs it nothing
  const TimePoint begun = world.executor().clock().Now();
  world.executor().RunAll();
  EXPECT_EQ(a.l3_log->last_deadline.load(), begun + kBackgroundFetchTimeout);
  EXPECT_EQ(Ask(*session, {1}).statuses[0], KeyStatus::kHitL2);
}

// A default row that nobody will replace is not pending (invariant 3).
TEST_F(MissPolicyTest, WhatNoLevelTakesIsNotPending) {
  const WorldTable& a = Make({.hit_rate_threshold = 0.0});
  Serve(a);
  world_.executor().RunAll();
  const ApplyEpoch open = a.served->epochs().Begin();
  a.served->l2()[0].health().Quarantine();
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kDefaultDegraded);
  EXPECT_EQ(world_.executor().queued_count(), 0) << "nothing was begun that could lead nowhere";
  a.served->epochs().Publish(open);
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kDefaultPending);
  world_.executor().RunAll();
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL2);
}

struct NothingTask final : public Task {
  void Run() override {}
};

TEST_F(MissPolicyTest, APromotionQueueThatIsFullDoesNotBreakThePromiseOfPending) {
  World world(0, {}, {.queue_max = 2});
  const WorldTable& a = Make({.hit_rate_threshold = 0.0});
  world.Publish({&a});
  world.executor().RunAll();
  const auto session = world.NewSession();
  NothingTask others[2];
  a.l3_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kNone, .times = 1, .before = [&] {
                                              for (Task& other : others)
                                                ASSERT_TRUE(world.executor().Post(&other).ok());
                                            }});
  EXPECT_EQ(Ask(*session, {1}).statuses[0], KeyStatus::kDefaultPending);
  world.executor().RunOne();
  EXPECT_EQ(Ask(*session, {1}).statuses[0], KeyStatus::kHitL2);
  EXPECT_EQ(Ask(*session, {2}).statuses[0], KeyStatus::kDefaultDegraded) << "the queue is full";
  EXPECT_EQ(world.statistics().promotions_dropped, 0);
  world.executor().RunAll();
}

}  // namespace
}  // namespace hps
