#include "l2_layered/layered_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "testing/contracts/lossy_rows.h"
#include "testing/fakes/plain_tier.h"
#include "testing/faults/fault_tier.h"

namespace hps {
namespace {

constexpr uint64_t kTable = 7;
constexpr size_t kRowBytes = 64;

class LayeredTableTest : public ::testing::Test {
 protected:
  LayeredTableTest() {
    auto near = WithFaults(std::make_unique<PlainLossyTable>(), &near_faults_);
    auto far = WithFaults(std::make_unique<PlainLossyTable>(), &far_faults_);
    near_ = near.get();
    far_ = far.get();
    table_ = std::make_unique<LayeredTable>(std::move(near), std::move(far), kRowBytes);
  }

  // What the table answers for `key`: the version of its row, or nothing.
  std::optional<Version> Fetch(LossyTable& table, Key key, bool near_only = false,
                               std::optional<ApplyEpoch> epoch = std::nullopt) {
    FetchOutcome outcome = FetchOutcome::kMiss;
    Version version = 0;
    std::array<std::byte, kRowBytes> row{};
    const auto counts = table.Fetch({.keys = {&key, 1},
                                     .rows = {row.data(), 1, kRowBytes, kRowBytes},
                                     .outcomes = {&outcome, 1},
                                     .versions = {&version, 1},
                                     .near_only = near_only,
                                     .epoch = epoch},
                                    kNoDeadline);
    EXPECT_TRUE(counts.ok()) << counts.status();
    if (outcome != FetchOutcome::kHit) return std::nullopt;
    EXPECT_TRUE(StampedRow::Matches(kTable, key, version, row));
    return version;
  }
  void Insert(LossyTable& table, Key key, Version version, ApplyEpoch epoch = 0) {
    ContractRows rows(kTable, {key}, kRowBytes, version);
    EXPECT_TRUE(table.Insert(rows.batch(), epoch).ok());
  }

  TierFaults near_faults_{nullptr};
  TierFaults far_faults_{nullptr};
  LossyTable* near_ = nullptr;
  LossyTable* far_ = nullptr;
  std::unique_ptr<LayeredTable> table_;
};

TEST_F(LayeredTableTest, ARowOfTheFarPartIsCopiedIntoTheNearOne) {
  Insert(*far_, 5, 3);
  EXPECT_EQ(Fetch(*table_, 5, /*near_only=*/true), std::nullopt);
  EXPECT_EQ(Fetch(*table_, 5), 3u);
  EXPECT_EQ(Fetch(*near_, 5), std::nullopt);  // without an epoch nothing is copied
  EXPECT_EQ(Fetch(*table_, 5, false, 0), 3u);
  EXPECT_EQ(Fetch(*near_, 5), 3u);
  EXPECT_EQ(Fetch(*table_, 5, /*near_only=*/true), 3u);
}

TEST_F(LayeredTableTest, AnAbsentEntryIsCopiedToo) {
  ContractRows rows(kTable, {5}, kRowBytes, 0);
  rows.SetAbsent(0);
  ASSERT_TRUE(far_->Insert(rows.batch(), 0).ok());
  EXPECT_EQ(Fetch(*table_, 5, false, 0), std::nullopt);
  EXPECT_EQ(near_->Statistics().absent_entries, 1u);
}

// The row was fetched before the change, or may have been.
TEST_F(LayeredTableTest, ACopyOlderThanAChangeIsRefused) {
  const std::vector<Key> keys = {5};
  Insert(*far_, 5, 3);
  ASSERT_TRUE(table_->RaiseWatermarks(keys, 1, kNoDeadline).ok());
  EXPECT_EQ(Fetch(*table_, 5, false, 0), 3u);
  EXPECT_EQ(Fetch(*near_, 5), std::nullopt);
  EXPECT_EQ(Fetch(*table_, 5, false, 1), 3u);
  EXPECT_EQ(Fetch(*near_, 5), 3u);
}

// An insertion that was under way when the change began puts the older row into the near part after
// the fetch has missed there; the far part has the newer row. The next fetch would go back.
TEST_F(LayeredTableTest, TheNearPartIsAskedAgainWhereAChangeBegan) {
  const std::vector<Key> keys = {5};
  Insert(*far_, 5, 3);
  far_faults_.Plan(TierOperation::kFetch,
                   {.fault = TierFault::kNone, .times = 1, .before = [&] {
                      Insert(*near_, 5, 3);
                      ASSERT_TRUE(table_->RaiseWatermarks(keys, 1, kNoDeadline).ok());
                      ContractRows rows(kTable, keys, kRowBytes, 4);
                      ASSERT_EQ(*far_->Update(rows.batch()), 1u);
                    }});
  EXPECT_EQ(Fetch(*table_, 5), 3u);
  EXPECT_EQ(Fetch(*table_, 5), 3u);
}

TEST_F(LayeredTableTest, ChangesGoToBothParts) {
  Insert(*table_, 5, 3);
  ContractRows rows(kTable, {5}, kRowBytes, 4);
  EXPECT_EQ(*table_->Update(rows.batch()), 1u);
  EXPECT_EQ(Fetch(*near_, 5), 4u);
  EXPECT_EQ(Fetch(*far_, 5), 4u);
  EXPECT_EQ(*table_->Erase(rows.keys()), 1u);
  EXPECT_EQ(Fetch(*table_, 5), std::nullopt);
  Insert(*table_, 5, 5);
  ASSERT_TRUE(table_->Clear().ok());
  EXPECT_EQ(Fetch(*table_, 5), std::nullopt);
  Insert(*far_, 6, 1);
  ContractRows other(kTable, {6}, kRowBytes, 2);
  EXPECT_EQ(*table_->Update(other.batch()), 1u);  // held by the far part alone
}

// Catches: a far part that fails and leaves the near one with the older row.
TEST_F(LayeredTableTest, AFailureOfOnePartIsSaidAndTheOtherOneIsChanged) {
  Insert(*table_, 5, 3);
  ContractRows rows(kTable, {5}, kRowBytes, 4);
  const TierFaultRule once = {.status = absl::UnavailableError("far"), .times = 1};
  far_faults_.Plan(TierOperation::kUpdate, once);
  EXPECT_EQ(table_->Update(rows.batch()).status().message(), "far");
  EXPECT_EQ(Fetch(*near_, 5), 4u);
  far_faults_.Plan(TierOperation::kErase, once);
  EXPECT_EQ(table_->Erase(rows.keys()).status().message(), "far");
  EXPECT_EQ(Fetch(*near_, 5), std::nullopt);
  far_faults_.Plan(TierOperation::kFetch, once);
  const ContractFetch fetch(*table_, {5}, kRowBytes);
  EXPECT_EQ(fetch.status().message(), "far");
}

// A table that loses rows at random.
class Forgetful final : public LossyTable {
 public:
  Forgetful(size_t key_count, uint64_t seed) : key_count_(key_count), random_(seed) {}

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    Forget();
    return table_.Fetch(batch, deadline);
  }
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override {
    Forget();
    return table_.Insert(batch, epoch);
  }
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override {
    std::this_thread::yield();
    return table_.Update(batch);
  }
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override { return table_.Erase(keys); }
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    return table_.RaiseWatermarks(keys, epoch, deadline);
  }
  absl::Status Clear() override { return table_.Clear(); }
  LevelStatistics Statistics() const override { return table_.Statistics(); }
  bool can_block() const override { return false; }
  bool has_near_part() const override { return false; }

 private:
  void Forget() {
    const uint64_t drawn = random_.fetch_add(0x9e3779b97f4a7c15) >> 32;
    const Key key = static_cast<Key>(drawn % key_count_);
    if (drawn % 3 == 0) table_.Erase({&key, 1}).IgnoreError();
    std::this_thread::yield();
  }

  const uint64_t key_count_;
  std::atomic<uint64_t> random_;
  PlainLossyTable table_;
};

// A node in small: an applier, and readers that ask level 2 and then level 3 as the read path does.
class SmallNode {
 public:
  static constexpr size_t kKeys = 8;

  // Changes every key in turn, `changes` times.
  void Apply(uint64_t changes) {
    for (uint64_t change = 1; change <= changes; ++change) {
      const Key key = static_cast<Key>(change % kKeys);
      const ApplyEpoch epoch = epochs_.Begin();
      EXPECT_TRUE(table_.RaiseWatermarks({&key, 1}, epoch, kNoDeadline).ok());
      level3_[static_cast<size_t>(key)] = change;
      ContractRows rows(kTable, {key}, kRowBytes, change);
      EXPECT_TRUE(table_.Update(rows.batch()).ok());
      epochs_.Publish(epoch);
    }
    done_ = true;
  }

  // Until the applier is done: no answer is older than one that was given before it was asked for.
  void Read(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!done_) {
      const Key key = static_cast<Key>(random() % kKeys);
      std::atomic<Version>& shown = shown_[static_cast<size_t>(key)];
      const Version before = shown;
      const Version version = Lookup(key);
      EXPECT_GE(version, before) << "key " << key;
      Version newest = shown;
      while (newest < version && !shown.compare_exchange_weak(newest, version)) {
      }
    }
  }

 private:
  Version Lookup(Key key) {
    const ApplyEpoch epoch = epochs_.published();
    if (const auto held = AskLevel2(key, epoch)) return *held;
    const Version version = level3_[static_cast<size_t>(key)];
    if (epochs_.begun() > epoch) {
      if (const auto held = AskLevel2(key, epoch)) return *held;
    }
    ContractRows rows(kTable, {key}, kRowBytes, version);
    EXPECT_TRUE(table_.Insert(rows.batch(), epoch).ok());
    return version;
  }
  std::optional<Version> AskLevel2(Key key, ApplyEpoch epoch) {
    FetchOutcome outcome = FetchOutcome::kMiss;
    Version version = 0;
    std::array<std::byte, kRowBytes> row{};
    EXPECT_TRUE(table_
                    .Fetch({.keys = {&key, 1},
                            .rows = {row.data(), 1, kRowBytes, kRowBytes},
                            .outcomes = {&outcome, 1},
                            .versions = {&version, 1},
                            .epoch = epoch},
                           kNoDeadline)
                    .ok());
    if (outcome != FetchOutcome::kHit) return std::nullopt;
    return version;
  }

  ApplyEpochs epochs_;
  LayeredTable table_{std::make_unique<Forgetful>(kKeys, 1), std::make_unique<Forgetful>(kKeys, 2),
                      kRowBytes};
  std::array<std::atomic<Version>, kKeys> level3_{};
  std::array<std::atomic<Version>, kKeys> shown_{};
  std::atomic<bool> done_{false};
};

TEST(LayeredTableThreadsTest, NoRowGoesBackWhileBothPartsForget) {
  SmallNode node;
  std::vector<std::thread> readers;
  for (uint64_t reader = 0; reader < 3; ++reader)
    readers.emplace_back([&node, reader] { node.Read(reader); });
  node.Apply(20'000);
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace hps
