#include "testing/faults/fault_tier.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "testing/await.h"
#include "testing/fakes/manual_executor.h"
#include "testing/fakes/plain_tier.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 32;
constexpr size_t kKeyCount = 33;

// Keys 0..32 with stamped rows of one version, as a batch to write or to fetch into.
struct Batch {
  explicit Batch(Version version = 1) : versions(kKeyCount, version) {
    std::iota(keys.begin(), keys.end(), Key{0});
    for (size_t i = 0; i < kKeyCount; ++i) {
      StampedRow::Write(0, keys[i], version, std::span(bytes).subspan(i * kRowBytes, kRowBytes));
    }
  }
  HostRows rows() {
    return {.data = bytes.data(),
            .row_count = kKeyCount,
            .row_bytes = kRowBytes,
            .stride_bytes = kRowBytes};
  }
  RowBatch write() { return {.keys = keys, .rows = rows(), .versions = versions}; }
  FetchBatch fetch() {
    return {.keys = keys, .rows = rows(), .outcomes = outcomes, .versions = versions};
  }
  // The number of hits that are not the stamped row of their key and version.
  size_t WrongHits() {
    size_t wrong = 0;
    for (size_t i = 0; i < kKeyCount; ++i) {
      const auto row = std::span(bytes).subspan(i * kRowBytes, kRowBytes);
      wrong +=
          outcomes[i] == FetchOutcome::kHit && !StampedRow::Matches(0, keys[i], versions[i], row);
    }
    return wrong;
  }

  std::vector<Key> keys = std::vector<Key>(kKeyCount);
  std::vector<std::byte> bytes = std::vector<std::byte>(kKeyCount * kRowBytes);
  std::vector<Version> versions;
  std::vector<FetchOutcome> outcomes = std::vector<FetchOutcome>(kKeyCount);
};

TableSpec Spec() { return {.name = "m/t", .dim = kRowBytes / 4}; }

class FaultyLossyTableTest : public testing::Test {
 protected:
  FaultyLossyTableTest() {
    Batch batch(1);
    EXPECT_EQ(table_->Insert(batch.write(), 0)->inserted, kKeyCount);
  }
  absl::StatusOr<FetchCounts> Fetch() { return table_->Fetch(got_.fetch(), kNoDeadline); }

  TierFaults faults_;
  std::unique_ptr<LossyTable> table_ = WithFaults(std::make_unique<PlainLossyTable>(), &faults_);
  Batch got_{0};
};

TEST_F(FaultyLossyTableTest, ChangesNothingWithoutAPlan) {
  ASSERT_EQ(Fetch()->hits, kKeyCount);
  EXPECT_EQ(got_.WrongHits(), 0u);
  EXPECT_EQ(faults_.calls(TierOperation::kFetch), 1u);
  EXPECT_EQ(faults_.injected(TierOperation::kFetch), 0u);
  EXPECT_FALSE(table_->can_block());
  faults_.set_can_block(true);
  EXPECT_TRUE(table_->can_block());
}

TEST_F(FaultyLossyTableTest, FailsTheCallsOfThePlan) {
  faults_.Plan(TierOperation::kFetch, {.calls_skipped = 1, .times = 2});
  EXPECT_TRUE(Fetch().ok());
  EXPECT_EQ(Fetch().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(Fetch().ok());
  EXPECT_TRUE(Fetch().ok());
  EXPECT_EQ(faults_.injected(TierOperation::kFetch), 2u);
}

TEST_F(FaultyLossyTableTest, FailsEveryOperation) {
  Batch batch(2);
  using enum TierOperation;
  for (TierOperation operation : {kInsert, kUpdate, kErase, kRaiseWatermarks, kClear})
    faults_.Plan(operation, {.status = absl::DeadlineExceededError("late")});
  EXPECT_FALSE(table_->Insert(batch.write(), 0).ok());
  EXPECT_FALSE(table_->Update(batch.write()).ok());
  EXPECT_FALSE(table_->Erase(batch.keys).ok());
  EXPECT_FALSE(table_->RaiseWatermarks(batch.keys, 1, kNoDeadline).ok());
  EXPECT_EQ(table_->Clear().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(Fetch()->hits, kKeyCount);
  EXPECT_EQ(got_.versions[0], 1u);
}

TEST_F(FaultyLossyTableTest, ALateFailureHasDoneItsWork) {
  faults_.Plan(TierOperation::kUpdate, {.fault = TierFault::kFailLate});
  Batch batch(2);
  EXPECT_FALSE(table_->Update(batch.write()).ok());
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(got_.versions[0], 2u);
}

TEST_F(FaultyLossyTableTest, DroppedHitsAreMisses) {
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kDrop, .key_stride = 2});
  const FetchCounts counts = *Fetch();
  EXPECT_EQ(counts.misses, 17u);
  EXPECT_EQ(counts.hits, 16u);
  EXPECT_EQ(got_.outcomes[0], FetchOutcome::kMiss);
  EXPECT_EQ(got_.outcomes[1], FetchOutcome::kHit);
}

// A planted defect: an update that is lost although it reported success shows as an old version.
TEST_F(FaultyLossyTableTest, ADroppedUpdateLeavesTheOldRow) {
  faults_.Plan(TierOperation::kUpdate, {.fault = TierFault::kDrop, .key_stride = 32});
  Batch batch(2);
  EXPECT_EQ(*table_->Update(batch.write()), kKeyCount);
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(got_.versions[0], 1u);
  EXPECT_EQ(got_.versions[1], 2u);
  EXPECT_EQ(got_.versions[32], 1u);
}

// A planted defect: stamps find every flipped bit, on the way in and on the way out.
TEST_F(FaultyLossyTableTest, StampsFindEveryCorruptedRow) {
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kCorrupt});
  ASSERT_EQ(Fetch()->hits, kKeyCount);
  EXPECT_EQ(got_.WrongHits(), kKeyCount);
  faults_.Clear();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(got_.WrongHits(), 0u);
  faults_.Plan(TierOperation::kUpdate, {.fault = TierFault::kCorrupt, .key_stride = 8});
  Batch batch(2);
  EXPECT_TRUE(table_->Update(batch.write()).ok());
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(got_.WrongHits(), 5u);
}

TEST_F(FaultyLossyTableTest, ADroppedEraseAndClearLeaveTheRows) {
  faults_.Plan(TierOperation::kErase, {.fault = TierFault::kDrop, .key_stride = 32});
  EXPECT_EQ(*table_->Erase(got_.keys), kKeyCount);
  EXPECT_EQ(Fetch()->hits, 2u);
  faults_.Plan(TierOperation::kClear, {.fault = TierFault::kDrop});
  EXPECT_TRUE(table_->Clear().ok());
  EXPECT_EQ(Fetch()->hits, 2u);
}

// A planted defect: without the raise, a promotion older than a change is admitted.
TEST_F(FaultyLossyTableTest, ADroppedRaiseLetsAnOldPromotionIn) {
  ASSERT_TRUE(table_->Clear().ok());
  Batch old(1);
  ASSERT_TRUE(table_->RaiseWatermarks(old.keys, 1, kNoDeadline).ok());
  EXPECT_EQ(table_->Insert(old.write(), 0)->refused, kKeyCount);
  faults_.Plan(TierOperation::kRaiseWatermarks, {.fault = TierFault::kDrop});
  ASSERT_TRUE(table_->RaiseWatermarks(old.keys, 2, kNoDeadline).ok());
  EXPECT_EQ(table_->Insert(old.write(), 1)->inserted, kKeyCount);
}

TEST_F(FaultyLossyTableTest, RunsTheTestsFunctionBetweenTwoSteps) {
  Batch newer(2);
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kNone, .before = [&] {
                                         EXPECT_TRUE(table_->Update(newer.write()).ok());
                                       }});
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(got_.versions[0], 2u);
}

TEST_F(FaultyLossyTableTest, ADelayedCallWaitsForRelease) {
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kStall});
  absl::StatusOr<FetchCounts> counts = absl::UnknownError("did not return");
  std::thread thread([&] { counts = table_->Fetch(got_.fetch(), RealClock().Now()); });
  EXPECT_TRUE(AwaitCondition([&] { return faults_.delayed_count() == 1; }));
  faults_.Release();
  thread.join();
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->hits, kKeyCount);
}

TEST_F(FaultyLossyTableTest, ADelayedCallEndsAtItsDeadline) {
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kDelay});
  EXPECT_EQ(table_->Fetch(got_.fetch(), RealClock().Now()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(faults_.delayed_count(), 0u);
}

TEST(TierFaultsTest, AManualExecutorPassesTheTimeOfADelay) {
  ManualExecutor executor;
  TierFaults faults(&executor);
  auto table = WithFaults(std::make_unique<PlainLossyTable>(), &faults);
  faults.Plan(TierOperation::kFetch, {.fault = TierFault::kDelay});
  Batch got;
  const Deadline deadline = executor.clock().Now() + std::chrono::milliseconds(5);
  EXPECT_EQ(table->Fetch(got.fetch(), deadline).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(executor.clock().Now(), deadline);
}

TEST(TierFaultsTest, TheSameSeedDrawsTheSameFaults) {
  const std::vector<TierOperation> operations = {TierOperation::kFetch};
  const TierFaultRates rates = {.fail = 0.1, .fail_late = 0.1, .drop = 0.2, .corrupt = 0.2};
  std::vector<TierFault> first;
  std::array<size_t, 7> drawn{};
  for (int run = 0; run < 2; ++run) {
    TierFaults faults;
    faults.PlanBySeed(7, operations, rates);
    for (size_t i = 0; i < 1000; ++i) {
      const TierFault fault = faults.Begin(TierOperation::kFetch).fault;
      if (run == 0) {
        first.push_back(fault);
        ++drawn[static_cast<size_t>(fault)];
      } else {
        EXPECT_EQ(fault, first[i]);
      }
    }
    EXPECT_EQ(faults.Begin(TierOperation::kUpdate).fault, TierFault::kNone);
  }
  EXPECT_NEAR(drawn[static_cast<size_t>(TierFault::kFail)], 100, 40);
  EXPECT_NEAR(drawn[static_cast<size_t>(TierFault::kCorrupt)], 200, 60);
  EXPECT_NEAR(drawn[static_cast<size_t>(TierFault::kNone)], 400, 80);
}

TEST(FaultyLossyTierTest, OpensFaultyTables) {
  TierFaults faults;
  auto tier = WithFaults(std::make_unique<PlainLossyTier>(), &faults);
  auto table = tier->OpenTable(Spec(), 1, 1 << 20);
  ASSERT_TRUE(table.ok()) << table.status();
  faults.Plan(TierOperation::kFetch, {});
  faults.Plan(TierOperation::kOpenTable, {});
  Batch got;
  EXPECT_FALSE((*table)->Fetch(got.fetch(), kNoDeadline).ok());
  EXPECT_FALSE(tier->OpenTable(Spec(), 1, 1 << 20).ok());
}

class FaultyDurableTableTest : public testing::Test {
 protected:
  FaultyDurableTableTest() {
    Batch batch(1);
    const StreamPosition position{.partition = 3, .offset = 9};
    EXPECT_TRUE(table_->Write({.upserts = batch.write(), .positions = {&position, 1}}).ok());
  }

  TierFaults faults_;
  std::unique_ptr<DurableTable> table_ =
      WithFaults(std::make_unique<PlainDurableTable>(Spec()), &faults_);
  Batch got_{0};
};

TEST_F(FaultyDurableTableTest, ChangesNothingWithoutAPlan) {
  EXPECT_EQ(table_->Fetch(got_.fetch(), kNoDeadline)->hits, kKeyCount);
  EXPECT_EQ(got_.WrongHits(), 0u);
  EXPECT_EQ(table_->Positions()->size(), 1u);
  auto cursor = table_->Scan();
  ASSERT_TRUE(cursor.ok());
  EXPECT_EQ(*(*cursor)->Next(got_.keys, got_.rows(), got_.versions), kKeyCount);
  EXPECT_EQ(*(*cursor)->Next(got_.keys, got_.rows(), got_.versions), 0u);
}

TEST_F(FaultyDurableTableTest, AFailedFetchLeavesMissesAsTheContractSays) {
  faults_.Plan(TierOperation::kFetch, {});
  got_.outcomes.assign(kKeyCount, FetchOutcome::kHit);
  EXPECT_FALSE(table_->Fetch(got_.fetch(), kNoDeadline).ok());
  for (FetchOutcome outcome : got_.outcomes) EXPECT_EQ(outcome, FetchOutcome::kMiss);
}

// Planted defects: an acknowledged write that is lost, a corrupt row, a hit reported as absent.
TEST_F(FaultyDurableTableTest, LosesAndCorruptsWhatThePlanSays) {
  Batch newer(2);
  faults_.Plan(TierOperation::kWrite, {.fault = TierFault::kDrop, .key_stride = 3});
  EXPECT_TRUE(table_->Write({.upserts = newer.write()}).ok());
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kDrop, .key_stride = 16});
  EXPECT_EQ(table_->Fetch(got_.fetch(), kNoDeadline)->absent, 3u);
  EXPECT_EQ(got_.outcomes[16], FetchOutcome::kAbsent);
  EXPECT_EQ(got_.versions[3], 1u);
  EXPECT_EQ(got_.versions[4], 2u);
  faults_.Plan(TierOperation::kFetch, {.fault = TierFault::kCorrupt, .key_stride = 16});
  EXPECT_EQ(table_->Fetch(got_.fetch(), kNoDeadline)->hits, kKeyCount);
  EXPECT_EQ(got_.WrongHits(), 3u);
}

TEST_F(FaultyDurableTableTest, ScansAndPositionsFailAndDrop) {
  faults_.Plan(TierOperation::kScanNext, {.fault = TierFault::kDrop});
  auto cursor = table_->Scan();
  EXPECT_EQ(*(*cursor)->Next(got_.keys, got_.rows(), got_.versions), kKeyCount - 1);
  faults_.Plan(TierOperation::kPositions, {.fault = TierFault::kDrop});
  EXPECT_TRUE(table_->Positions()->empty());
  faults_.Plan(TierOperation::kScan, {});
  EXPECT_FALSE(table_->Scan().ok());
}

}  // namespace
}  // namespace hps
