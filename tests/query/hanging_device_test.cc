// Sessions with a device cache that does not answer in time, or fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/circuit_breaker.h"
#include "query/test_query_world.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_cache.h"

namespace hps {
namespace {

using testing::Each;
using testing::ElementsAre;

// An executor that is made later: a device is made before the world whose time it passes.
class LaterExecutor final : public Executor {
 public:
  void Become(Executor& executor) { executor_ = &executor; }
  absl::Status Post(Task* task) override { return executor_->Post(task); }
  bool Await(Latch& latch, Deadline deadline) override { return executor_->Await(latch, deadline); }
  const Clock& clock() const override { return executor_->clock(); }
  size_t thread_count() const override { return executor_->thread_count(); }
  size_t queued_count() const override { return executor_->queued_count(); }

 private:
  Executor* executor_ = nullptr;
};

// A device that does not answer in one step of a call; below it there is only L3.
class HangingDeviceTest : public testing::Test {
 protected:
  HangingDeviceTest() {
    executor_.Become(world_.executor());
    a_.served->AttachL1(0, *cache_->OpenTable(32, cache_->TableBytes(32, 100)));
    world_.Publish({&a_});
    session_ = world_.NewSession({.device = 0});
  }

  TimePoint Now() { return world_.executor().clock().Now(); }
  // What L3 answers, and how long it takes.
  Duration AskL3(Duration timeout) {
    const TimePoint before = Now();
    const WorldAnswer answer = Ask(*session_, {1, 2, 3}, 0, {.timeout = timeout});
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_THAT(answer.statuses,
                ElementsAre(KeyStatus::kHitL3, KeyStatus::kHitL3, KeyStatus::kAbsent));
    EXPECT_TRUE(StampedRow::Matches(1, 2, 0, answer.row(1)));
    return Now() - before;
  }

  LaterExecutor executor_;
  TierFaults faults_{&executor_};
  std::unique_ptr<DeviceCache> cache_ =
      WithFaults(*MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20}), &faults_);
  const WorldTable a_ = MakeWorldTable({.has_l2 = false, .keys = {1, 2}}, nullptr);
  World world_{0, {cache_.get()}};
  std::unique_ptr<LookupSession> session_;
};

TEST_F(HangingDeviceTest, LeavesL3TimeToAnswerAndIsLeftAloneForAWhile) {
  using std::chrono::milliseconds;
  struct Case {
    Duration timeout;
    Duration waited;
  };
  uint64_t hung = 0;
  for (const TierOperation step : {TierOperation::kMisses, TierOperation::kWait}) {
    for (const Case& c :
         {Case{milliseconds(200), milliseconds(100)}, Case{milliseconds(1000), milliseconds(500)},
          Case{milliseconds(10'000), milliseconds(1000)},
          Case{Duration::max(), milliseconds(1000)}}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(step) << " " << c.timeout.count());
      ASSERT_TRUE(a_.served->l1(0)->Clear().ok());
      const uint64_t hung_here = faults_.injected(step);
      faults_.Plan(step, {.fault = TierFault::kDelay});
      EXPECT_EQ(AskL3(c.timeout), c.waited);
      EXPECT_EQ(world_.statistics().tables[0].l1.errors, ++hung);
      EXPECT_EQ(world_.statistics().l1_unavailable, 1);
      EXPECT_EQ(AskL3(c.timeout), Duration::zero()) << "nobody waits in vain again";
      EXPECT_EQ(AskL3(c.timeout), Duration::zero());
      world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
      EXPECT_EQ(AskL3(c.timeout), c.waited) << "one call tries it again";
      EXPECT_EQ(AskL3(c.timeout), Duration::zero());
      EXPECT_EQ(world_.statistics().tables[0].l1.errors, ++hung);
      EXPECT_EQ(faults_.injected(step) - hung_here, 2);
      faults_.Clear();
      world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
      world_.executor().RunAll();
      for (int calls = 0; calls < 2; ++calls) {
        Ask(*session_, {1, 2});
        world_.executor().RunAll();
      }
      EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL1) << "it answers again";
      EXPECT_EQ(world_.statistics().l1_unavailable, 0);
    }
  }
}

// Catches: a device that fails for good, which every call asks again.
TEST_F(HangingDeviceTest, OneThatFailsIsLeftAloneForAWhile) {
  uint64_t failed = 0;
  for (const absl::Status& failure :
       {absl::InternalError("illegal access"), absl::UnavailableError("device is busy")}) {
    SCOPED_TRACE(failure.ToString());
    faults_.Plan(TierOperation::kBegin, {.fault = TierFault::kFail, .status = failure});
    for (int calls = 0; calls < 5; ++calls) AskL3(Duration::max());
    EXPECT_EQ(faults_.injected(TierOperation::kBegin), ++failed);
    EXPECT_EQ(world_.statistics().l1_unavailable, 1);
    world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
    AskL3(Duration::max());
    EXPECT_EQ(faults_.injected(TierOperation::kBegin), ++failed);
    faults_.Clear();
    world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
    Ask(*session_, {1});
    EXPECT_EQ(world_.statistics().l1_unavailable, 0);
  }
  faults_.Plan(TierOperation::kBegin, {.fault = TierFault::kFail,
                                       .status = absl::ResourceExhaustedError("no call left"),
                                       .times = 1});
  Ask(*session_, {1});
  EXPECT_EQ(world_.statistics().l1_unavailable, 0) << "the next one may find one";
}

// A caller who leaves no time gets what is at hand, hence what a device that works holds.
TEST_F(HangingDeviceTest, IsWaitedForAMomentWhereNoTimeIsLeft) {
  Ask(*session_, {1});
  world_.executor().RunAll();
  const HostLookupRequest at_hand{.timeout = Duration::zero()};
  EXPECT_THAT(Ask(*session_, {1, 2}, 0, at_hand).statuses,
              ElementsAre(KeyStatus::kHitL1, KeyStatus::kDefaultDegraded));
  faults_.Plan(TierOperation::kMisses, {.fault = TierFault::kDelay});
  const TimePoint before = Now();
  const WorldAnswer answer = Ask(*session_, {1, 2}, 0, at_hand);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_THAT(answer.statuses, Each(KeyStatus::kDefaultDegraded));
  EXPECT_EQ(Now() - before, std::chrono::milliseconds(100));
}

// Catches: a wait that is not the caller's, for rows that no other level can give.
TEST_F(HangingDeviceTest, HasTheCallersTimeWhereTheRowsAreWantedOnIt) {
  using std::chrono::milliseconds;
  struct Case {
    Duration timeout;
    Duration waited;
  };
  for (const TierOperation step : {TierOperation::kMisses, TierOperation::kWait}) {
    for (const Case& c :
         {Case{Duration::zero(), milliseconds(100)}, Case{milliseconds(5), milliseconds(100)},
          Case{milliseconds(300), milliseconds(300)},
          Case{milliseconds(10'000), milliseconds(10'000)},
          Case{std::chrono::hours(1), std::chrono::minutes(1)},
          Case{Duration::max(), std::chrono::minutes(1)}}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(step) << " " << c.timeout.count());
      faults_.Plan(step, {.fault = TierFault::kDelay});
      const TimePoint before = Now();
      const absl::Status status = AskOnDevice(*session_, {1, 2}, c.timeout);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_EQ(Now() - before, c.waited);
      EXPECT_EQ(world_.statistics().l1_unavailable, 1);
      faults_.Clear();
      EXPECT_TRUE(AskOnDevice(*session_, {1, 2}).ok());
      EXPECT_EQ(world_.statistics().l1_unavailable, 0);
    }
  }
}

TEST_F(HangingDeviceTest, HasAMomentWhereTheLookUpIsCancelled) {
  LookupCancel cancel;
  cancel.Cancel();
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(keys.size() * 32);
  const DeviceTableQuery query{.keys = {keys.data(), keys.size()},
                               .rows = {rows.data(), rows.size()}};
  faults_.Plan(TierOperation::kMisses, {.fault = TierFault::kDelay});
  const TimePoint before = Now();
  const absl::Status status = session_->Lookup(
      DeviceLookupRequest{.queries = {&query, 1}, .timeout = Duration::max(), .cancel = &cancel},
      nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(Now() - before, std::chrono::milliseconds(100));
}

// Catches: a caller whose stream is at work, by whom level 1 is lost for all others.
TEST_F(HangingDeviceTest, IsNotBlamedForACallersStream) {
  int callers_stream = 0;  // the host's cache does not look at it
  faults_.Plan(TierOperation::kMisses, {.fault = TierFault::kDelay});
  EXPECT_EQ(AskOnDevice(*session_, {1, 2}, Duration::zero(), {.handle = &callers_stream}).code(),
            absl::StatusCode::kDeadlineExceeded);
  faults_.Clear();
  EXPECT_EQ(world_.statistics().l1_unavailable, 0);
  Ask(*session_, {1});
  world_.executor().RunAll();
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL1);
  faults_.Plan(TierOperation::kMisses,
               {.fault = TierFault::kFail, .status = absl::InternalError("illegal access")});
  EXPECT_EQ(AskOnDevice(*session_, {1, 2}, {}, {.handle = &callers_stream}).code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(world_.statistics().l1_unavailable, 1) << "that is no matter of its stream";
}

// Catches: a device that hangs, which each lookup of predictions waits for, because only their own
// slot knows.
TEST_F(HangingDeviceTest, IsBlamedForAStreamThatIsIdle) {
  int stream = 0;  // the host's cache does not look at it
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(keys.size() * 32);
  const DeviceTableQuery query{.keys = {keys.data(), keys.size()},
                               .rows = {rows.data(), rows.size()}};
  const DeviceLookupRequest request{.queries = {&query, 1},
                                    .timeout = std::chrono::milliseconds(300),
                                    .stream = {.handle = &stream},
                                    .stream_is_idle = true};
  faults_.Plan(TierOperation::kMisses, {.fault = TierFault::kDelay});
  EXPECT_EQ(session_->Lookup(request, nullptr).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(world_.statistics().l1_unavailable, 1);
  const TimePoint before = Now();
  EXPECT_EQ(AskL3(Duration::max()), Duration::zero()) << "other lookups do not wait for it";
  const absl::Status again = session_->Lookup(request, nullptr);
  EXPECT_EQ(again.code(), absl::StatusCode::kUnavailable) << again;
  EXPECT_EQ(Now() - before, Duration::zero()) << "nor do those of predictions";
  EXPECT_EQ(faults_.injected(TierOperation::kMisses), 1U);
  faults_.Clear();
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  EXPECT_TRUE(session_->Lookup(request, nullptr).ok()) << "one call tries it again";
  EXPECT_EQ(world_.statistics().l1_unavailable, 0);
}

}  // namespace
}  // namespace hps
