#include "serving/current_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "testing/fakes/observed_tables.h"
#include "testing/fakes/plain_tier.h"
#include "testing/faults/fault_tier.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 4;

// A row whose bytes are all `value`.
RowBatch One(const Key& key, std::vector<std::byte>& row, int value, const Version& version) {
  row.assign(kRowBytes, static_cast<std::byte>(value));
  return {
      .keys = {&key, 1}, .rows = {row.data(), 1, kRowBytes, kRowBytes}, .versions = {&version, 1}};
}

// Key 1 is in both levels (2 in level 2, 3 in level 3), key 2 in level 3 only, key 3 in none.
class CurrentRowsTest : public ::testing::Test {
 protected:
  CurrentRowsTest() {
    auto l3 = std::make_unique<PlainDurableTable>(TableSpec{.name = "m/t", .dim = 1});
    auto l2 = std::make_unique<PlainLossyTable>();
    std::vector<std::byte> row;
    EXPECT_TRUE(l3->Write({.upserts = One(1, row, 3, 5)}).ok());
    EXPECT_TRUE(l3->Write({.upserts = One(2, row, 3, 6)}).ok());
    EXPECT_TRUE(l2->Insert(One(1, row, 2, 4), 0).ok());
    LiveTable::Parts parts;
    parts.l3 = WithFaults(std::move(l3), &l3_faults_);
    parts.l2.push_back({.table = WithFaults(std::move(l2), &l2_faults_)});
    auto second = std::make_unique<PlainLossyTable>();
    second_ = second.get();
    parts.l2.push_back({.table = WithFaults(std::move(second), &second_faults_)});
    table_ = std::make_shared<LiveTable>(std::move(parts));
  }

  absl::Status Fetch() {
    return FetchCurrentRows(*table_,
                            {.keys = keys_,
                             .rows = {rows_.data(), keys_.size(), kRowBytes, kRowBytes},
                             .outcomes = outcomes_,
                             .versions = versions_},
                            kNoDeadline);
  }

  TierFaults l2_faults_;
  TierFaults second_faults_;  // of the second part, which is empty
  LossyTable* second_ = nullptr;
  TierFaults l3_faults_;
  std::shared_ptr<LiveTable> table_;
  const std::vector<Key> keys_ = {3, 1, 2};
  std::vector<std::byte> rows_ = std::vector<std::byte>(3 * kRowBytes);
  std::vector<FetchOutcome> outcomes_ = std::vector<FetchOutcome>(3);
  std::vector<Version> versions_ = std::vector<Version>(3);
};

TEST_F(CurrentRowsTest, AsksLevel3ForWhatLevel2Lacks) {
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(outcomes_,
            (std::vector{FetchOutcome::kAbsent, FetchOutcome::kHit, FetchOutcome::kHit}));
  EXPECT_EQ(rows_[kRowBytes], std::byte{2}) << "level 2's row";
  EXPECT_EQ(rows_[2 * kRowBytes], std::byte{3});
  EXPECT_EQ(versions_[1], 4);
  EXPECT_EQ(versions_[2], 6);
}

TEST_F(CurrentRowsTest, AsksEachPartOfLevel2ForWhatThoseBeforeItLack) {
  std::vector<std::byte> row;
  ASSERT_TRUE(second_->Insert(One(1, row, 8, 8), 0).ok());
  ASSERT_TRUE(second_->Insert(One(2, row, 9, 9), 0).ok());
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(versions_[1], 4) << "the first part's";
  EXPECT_EQ(versions_[2], 9);
  EXPECT_EQ(rows_[2 * kRowBytes], std::byte{9});
  EXPECT_EQ(outcomes_[0], FetchOutcome::kAbsent);
  l2_faults_.Plan(TierOperation::kFetch, {.times = 1});
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(versions_[1], 8) << "the second part's";
  second_faults_.Plan(TierOperation::kFetch, {.times = 1});
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(versions_[1], 4);
  EXPECT_EQ(versions_[2], 6) << "level 3's";
}

TEST_F(CurrentRowsTest, DoesNotAskALevel2InQuarantine) {
  table_->l2()[0].health().QuarantineUntilCleared();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(rows_[kRowBytes], std::byte{3});
  EXPECT_EQ(versions_[1], 5);
}

TEST_F(CurrentRowsTest, AFailedLevel2IsNoErrorButAFailedLevel3Is) {
  l2_faults_.Plan(TierOperation::kFetch, {});
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(rows_[kRowBytes], std::byte{3});
  l3_faults_.Plan(TierOperation::kFetch, {});
  EXPECT_EQ(Fetch().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hps
