// What a lookup makes of an L2 that hangs, is late, or finds no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "query/test_served_world.h"

namespace hps {
namespace {

using testing::Each;

constexpr auto kLate = static_cast<size_t>(absl::StatusCode::kDeadlineExceeded);

class L2FailureTest : public ServedWorldTest {
 protected:
  // Rows of keys 1 and 2.
  WorldTable& Make(WorldTableOptions options) {
    options.keys = {1, 2};
    return Add(options, &world_.executor());
  }
};

TEST_F(L2FailureTest, AnL2ThatHangsLeavesL3TimeToAnswer) {
  using std::chrono::milliseconds;
  const WorldTable& a = Make({.l2_blocks = true});
  Serve(a);
  Ask(*session_, {1, 2});
  world_.executor().RunAll();
  const ApplyEpoch open = a.served->epochs().Begin();
  a.l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kDelay});
  for (const Duration waited : {milliseconds(50), milliseconds(0)}) {  // then it is bypassed
    const TimePoint before = world_.executor().clock().Now();
    const WorldAnswer answer = Ask(*session_, {1, 2}, 0, {.timeout = milliseconds(100)});
    EXPECT_THAT(answer.statuses, Each(KeyStatus::kHitL3));
    EXPECT_EQ(world_.executor().clock().Now() - before, waited);
    EXPECT_EQ(world_.statistics().tables[0].l2.errors, 1);
    EXPECT_EQ(world_.statistics().tables[0].l2.errors_by_code[kLate], 1);
    EXPECT_TRUE(a.served->l2()[0].health().quarantined());
  }
  a.served->epochs().Publish(open);
}

// Catches: without updates every lookup waits half of its time for an L2 that is down.
TEST_F(L2FailureTest, AnL2ThatHangsIsProbedOnceASecondWithoutUpdates) {
  using std::chrono::milliseconds;
  const WorldTable& a = Make({.l2_blocks = true});
  Serve(a);
  Ask(*session_, {1, 2});
  world_.executor().RunAll();
  a.l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kDelay});
  const auto expect_wait = [&](Duration waited, uint64_t errors) {
    const TimePoint before = world_.executor().clock().Now();
    const WorldAnswer answer = Ask(*session_, {1, 2}, 0, {.timeout = milliseconds(100)});
    EXPECT_THAT(answer.statuses, Each(KeyStatus::kHitL3));
    EXPECT_EQ(world_.executor().clock().Now() - before, waited);
    EXPECT_EQ(world_.statistics().tables[0].l2.errors, errors);
    EXPECT_TRUE(world_.statistics().tables[0].l2_bypassed);
    EXPECT_FALSE(a.served->l2()[0].health().quarantined()) << "no change is open";
  };
  expect_wait(milliseconds(50), 1);
  expect_wait(milliseconds(0), 1);
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  expect_wait(milliseconds(50), 2);  // one lookup probes
  expect_wait(milliseconds(0), 2);
  a.l2_faults->Clear();
  world_.executor().RunAll();
  expect_wait(milliseconds(0), 2);  // an answer that came too late closes nothing
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  for (int i = 0; i < 2; ++i) {
    const WorldAnswer answer = Ask(*session_, {1, 2}, 0, {.timeout = milliseconds(100)});
    EXPECT_THAT(answer.statuses, Each(KeyStatus::kHitL2));
    EXPECT_FALSE(world_.statistics().tables[0].l2_bypassed);
  }
}

// A lookup that bypasses L2 may show a row that L2 does not have yet: the next one must not be
// shown L2's older row when the circuit breaker has closed.
TEST_F(L2FailureTest, AnL2ThatWasBypassedBesideAChangeIsInQuarantineUntilItIsPublished) {
  using std::chrono::milliseconds;
  const WorldTable& a = Make({.l2_blocks = true});
  Serve(a);
  Ask(*session_, {1});
  world_.executor().RunAll();
  a.l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kFail, .times = 1});
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3);
  EXPECT_FALSE(a.served->l2()[0].health().quarantined());
  const ApplyEpoch open = a.served->epochs().Begin();
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3) << "the breaker is open";
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  EXPECT_TRUE(a.served->l2()[0].health().quarantined());
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3);
  a.served->epochs().Publish(open);
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL2);
}

// Where another table's L2 has used the time up, the answer comes too late to be taken.
TEST_F(L2FailureTest, AnL2WhoseAnswerIsLateHasFailed) {
  using std::chrono::milliseconds;
  const WorldTable& a = Make({.l2_blocks = true});
  const WorldTable& b = Make({.name = "m/b", .stamp = 2, .l2_blocks = true});
  world_.Publish({&a, &b});
  session_ = world_.NewSession();
  for (const uint32_t table : {0, 1}) Ask(*session_, {1}, table);
  world_.executor().RunAll();
  const ApplyEpoch open = b.served->epochs().Begin();
  a.l2_faults->Plan(TierOperation::kFetch,
                    {.fault = TierFault::kNone, .times = 1, .before = [this] {
                       world_.executor().manual_clock().Advance(milliseconds(60));
                     }});
  const std::vector<Key> keys = {1};
  std::vector<std::byte> rows_a(32), rows_b(32);
  std::vector<KeyStatus> status_a(1), status_b(1);
  const std::vector<HostTableQuery> queries = {
      {.table = {0}, .keys = keys, .rows = rows_a, .status = status_a},
      {.table = {1}, .keys = keys, .rows = rows_b, .status = status_b}};
  ASSERT_TRUE(session_->Lookup({.queries = queries, .timeout = milliseconds(100)}, nullptr).ok());
  EXPECT_EQ(status_a[0], KeyStatus::kHitL2);
  EXPECT_EQ(status_b[0], KeyStatus::kHitL3);
  EXPECT_TRUE(StampedRow::Matches(2, 1, 0, rows_b));
  EXPECT_EQ(world_.statistics().tables[0].l2.errors, 0);
  EXPECT_EQ(world_.statistics().tables[1].l2.errors, 1);
  EXPECT_EQ(world_.statistics().tables[1].l2.errors_by_code[kLate], 1);
  EXPECT_TRUE(b.served->l2()[0].health().quarantined());
  b.served->epochs().Publish(open);
}

// Catches: the job of a probing lookup runs too late to ask L2, and counts as an answer of L2.
TEST_F(L2FailureTest, AProbeThatWasNotMadeClosesNoCircuitBreaker) {
  using std::chrono::milliseconds;
  const WorldTable& a = Make({.l2_blocks = true});
  const WorldTable& b = Make({.name = "m/b", .stamp = 2, .l2_blocks = true});
  world_.Publish({&a, &b});
  session_ = world_.NewSession();
  const std::vector<Key> keys = {1};
  std::vector<std::byte> rows_a(32), rows_b(32);
  std::vector<KeyStatus> status_a(1), status_b(1);
  const auto look_up_both = [&] {
    const std::vector<HostTableQuery> queries = {
        {.table = {0}, .keys = keys, .rows = rows_a, .status = status_a},
        {.table = {1}, .keys = keys, .rows = rows_b, .status = status_b}};
    EXPECT_TRUE(session_->Lookup({.queries = queries, .timeout = milliseconds(100)}, nullptr).ok());
  };
  for (int i = 0; i < 2; ++i) {  // leaves answers of L2 in the jobs
    look_up_both();
    world_.executor().RunAll();
  }
  ASSERT_EQ(status_b[0], KeyStatus::kHitL2);
  b.served->l2()[0].breaker().NoteFailure(world_.executor().clock().Now());
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  const uint64_t asked = b.l2_faults->calls(TierOperation::kFetch);
  a.l2_faults->Plan(TierOperation::kFetch,
                    {.fault = TierFault::kNone, .times = 1, .before = [this] {
                       world_.executor().manual_clock().Advance(milliseconds(60));
                       world_.executor().RunOne();  // the job of the other table
                     }});
  look_up_both();
  EXPECT_EQ(status_a[0], KeyStatus::kHitL2);
  EXPECT_EQ(status_b[0], KeyStatus::kHitL3);
  EXPECT_EQ(b.l2_faults->calls(TierOperation::kFetch), asked);
  EXPECT_TRUE(b.served->l2()[0].breaker().is_open());
}

// Catches: the last piece of a large lookup leaves level 2 no time, and level 2 counts as down.
TEST_F(L2FailureTest, APieceWithLittleTimeLeftPassesL2By) {
  using std::chrono::milliseconds;
  const WorldTable& a = Make({.l2_blocks = true});
  Serve(a);
  Ask(*session_, {1, 2});
  world_.executor().RunAll();
  session_ = world_.NewSession({.keys_max = 1});
  std::vector<Duration> taken = {milliseconds(45), milliseconds(20), milliseconds(60)};
  a.l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kNone, .before = [&] {
                                              world_.executor().manual_clock().Advance(taken[0]);
                                              taken.erase(taken.begin());
                                            }});
  const WorldAnswer answer = Ask(*session_, {1, 2, 1}, 0, {.timeout = milliseconds(100)});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.statuses,
            (std::vector<KeyStatus>{KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kHitL3}));
  EXPECT_EQ(world_.statistics().tables[0].l2.errors, 0);
  EXPECT_FALSE(world_.statistics().tables[0].l2_bypassed);
}

// It may miss the change that is open, as any L2 that fails.
TEST_F(L2FailureTest, AnL2ThatRunsOutOfMemoryHasFailed) {
  {
    const WorldTable& a = Make({.l2_blocks = true});
    Serve(a);
    Ask(*session_, {1});
    world_.executor().RunAll();
    const uint64_t errors = world_.statistics().tables[0].l2.errors;
    const ApplyEpoch open = a.served->epochs().Begin();
    a.l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kNone, .times = 1, .before = [] {
                                                throw std::bad_alloc();
                                              }});
    const WorldAnswer answer = Ask(*session_, {1});
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.statuses[0], KeyStatus::kHitL3);
    EXPECT_EQ(world_.statistics().tables[0].l2.errors, errors + 1);
    EXPECT_TRUE(a.served->l2()[0].health().quarantined());
    a.served->epochs().Publish(open);
    session_.reset();
    world_.executor().RunAll();
  }
}

}  // namespace
}  // namespace hps
