// Lookups of several tables whose level 2 answers them with one call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "query/test_served_world.h"

namespace hps {
namespace {

using std::chrono::milliseconds;
using testing::Each;

// Notes how it is asked.
class CountingTier final : public LossyTier {
 public:
  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec&, Incarnation,
                                                        uint64_t) override {
    return std::make_unique<PlainLossyTable>();
  }
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    tables_of_calls.push_back(fetches.size());
    size_t key_count = 0;
    for (const TableFetch& fetch : fetches) key_count += fetch.batch.keys.size();
    keys_per_call_max = std::max(keys_per_call_max, key_count);
    if (no_memory) throw std::bad_alloc();
    FetchEach(fetches, deadline);
  }

  std::vector<size_t> tables_of_calls;
  size_t keys_per_call_max = 0;
  bool no_memory = false;
};

struct FillerTask final : Task {
  void Run() override {}
};

class L2TablesTest : public ServedWorldTest {
 protected:
  // Keys 0 to `key_count` - 1 are in level 3.
  void ServeTables(size_t table_count, size_t key_count = 2) {
    ServeTables(table_count, key_count, world_);
  }
  void ServeTables(size_t table_count, size_t key_count, World& world) {
    for (size_t i = 0; i < key_count; ++i) keys_.push_back(static_cast<Key>(i));
    std::vector<const WorldTable*> served;
    for (size_t t = 0; t < table_count; ++t) {
      served.push_back(&Add({.name = "m/t" + std::to_string(t),
                             .stamp = t + 1,
                             .l2_blocks = true,
                             .l2_tier = &tier_,
                             .keys = keys_},
                            &world.executor()));
    }
    world.Publish(served);
    session_ = world.NewSession();
  }

  // One status for each table, whose keys all have it. Every row is checked.
  std::vector<KeyStatus> AskAll(Duration timeout = std::chrono::seconds(1)) {
    tier_.tables_of_calls.clear();
    std::vector<std::vector<std::byte>> rows(tables_.size(),
                                             std::vector<std::byte>(keys_.size() * 32));
    std::vector<std::vector<KeyStatus>> statuses(tables_.size(),
                                                 std::vector<KeyStatus>(keys_.size()));
    std::vector<HostTableQuery> queries;
    for (uint32_t t = 0; t < tables_.size(); ++t) {
      queries.push_back({.table = {t}, .keys = keys_, .rows = rows[t], .status = statuses[t]});
    }
    EXPECT_TRUE(session_->Lookup({.queries = queries, .timeout = timeout}, nullptr).ok());
    std::vector<KeyStatus> of_tables;
    for (size_t t = 0; t < tables_.size(); ++t) {
      of_tables.push_back(statuses[t][0]);
      EXPECT_THAT(statuses[t], Each(statuses[t][0]));
      for (size_t i = 0; i < keys_.size() && statuses[t][i] != KeyStatus::kDefaultDegraded; ++i) {
        EXPECT_TRUE(
            StampedRow::Matches(t + 1, keys_[i], 0, std::span(rows[t]).subspan(i * 32, 32)));
      }
    }
    return of_tables;
  }

  CountingTier tier_;
  std::vector<Key> keys_;
};

TEST_F(L2TablesTest, AllTablesOfALookupAreOneCall) {
  ServeTables(26);
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL3));
  EXPECT_THAT(tier_.tables_of_calls, testing::ElementsAre(26));
  world_.executor().RunAll();
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
  EXPECT_THAT(tier_.tables_of_calls, testing::ElementsAre(26));
}

TEST_F(L2TablesTest, ACallHasABoundedNumberOfKeys) {
  ServeTables(3, 3000);
  AskAll();
  world_.executor().RunAll();
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
  EXPECT_LE(tier_.keys_per_call_max, kFetchTaskKeysMax);
}

TEST_F(L2TablesTest, SmallTablesShareAScratchBuffer) {
  World world(0, {}, {.scratch_count = 2});
  ServeTables(26, 2, world);
  for (const KeyStatus expected : {KeyStatus::kHitL3, KeyStatus::kHitL2}) {
    EXPECT_THAT(AskAll(), Each(expected));
    EXPECT_THAT(tier_.tables_of_calls, testing::ElementsAre(26));
    world.executor().RunAll();
  }
  EXPECT_EQ(world.statistics().promotions_dropped, 0u);
  session_.reset();
}

TEST_F(L2TablesTest, ATableThatFailsIsAnsweredByLevel3) {
  ServeTables(3);
  AskAll();
  world_.executor().RunAll();
  tables_[1].l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kFail, .times = 1});
  const ApplyEpoch open = tables_[1].served->epochs().Begin();
  EXPECT_THAT(AskAll(),
              testing::ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL3, KeyStatus::kHitL2));
  EXPECT_TRUE(tables_[1].served->l2()[0].health().quarantined());
  EXPECT_FALSE(tables_[0].served->l2()[0].health().quarantined());
  tables_[1].served->epochs().Publish(open);
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
}

TEST_F(L2TablesTest, ACallThatFindsNoMemoryFailsForAllItsTables) {
  ServeTables(3);
  AskAll();
  world_.executor().RunAll();
  tier_.no_memory = true;
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL3));
  for (const WorldTable& table : tables_) EXPECT_TRUE(table.served->l2()[0].breaker().is_open());
}

// Two tables have a part before the one that can block, and one has not. Keys that the first parts
// lack are asked for in one call.
TEST_F(L2TablesTest, WhatFirstPartsLackIsOneCall) {
  keys_ = {1, 2, 3};
  std::vector<const WorldTable*> served;
  for (size_t t = 0; t < 3; ++t) {
    WorldTableOptions options = {.name = "m/t" + std::to_string(t), .stamp = t + 1, .keys = keys_};
    options.l2_blocks = t == 0;
    options.l2_tier = t == 0 ? &tier_ : nullptr;
    options.has_second = t != 0;
    options.second_tier = &tier_;
    served.push_back(&Add(options, &world_.executor()));
  }
  world_.Publish(served);
  session_ = world_.NewSession();
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL3));
  EXPECT_THAT(tier_.tables_of_calls, testing::ElementsAre(3));
  world_.executor().RunAll();
  ASSERT_TRUE(tables_[1].l2->Clear().ok());
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
  EXPECT_THAT(tier_.tables_of_calls, testing::ElementsAre(2)) << "table 2 has all before";
  world_.executor().RunAll();
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
  EXPECT_THAT(tier_.tables_of_calls, testing::IsEmpty()) << "table 0 alone needs no joint call";
  EXPECT_EQ(tables_[1].second_log->fetches, 2u);
  EXPECT_EQ(tables_[2].second_log->fetches, 1u);
}

// The task goes on without the lookup, and so do those of level 3.
TEST_F(L2TablesTest, ALookupThatEndsFirstLeavesTheTaskBehind) {
  ServeTables(3);
  AskAll();
  world_.executor().RunAll();
  world_.executor().Hold(true);
  EXPECT_THAT(AskAll(milliseconds(100)), Each(KeyStatus::kDefaultDegraded));
  EXPECT_EQ(world_.executor().queued_count(), 4u);
  world_.executor().Hold(false);
  world_.executor().RunAll();
  world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
}

TEST_F(L2TablesTest, ACancelledLookupSaysNothingAboutTheLevel) {
  ServeTables(3);
  AskAll();
  world_.executor().RunAll();
  LookupCancel cancel;
  tables_[1].l2_faults->Plan(
      TierOperation::kFetch,
      {.fault = TierFault::kNone, .times = 1, .before = [&] { cancel.Cancel(); }});
  std::vector<std::vector<std::byte>> rows(3, std::vector<std::byte>(keys_.size() * 32));
  std::vector<HostTableQuery> queries;
  for (uint32_t t = 0; t < 3; ++t)
    queries.push_back({.table = {t}, .keys = keys_, .rows = rows[t]});
  EXPECT_TRUE(session_->Lookup({.queries = queries, .cancel = &cancel}, nullptr).ok());
  for (const WorldTable& table : tables_) EXPECT_FALSE(table.served->l2()[0].breaker().is_open());
  world_.executor().RunAll();
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
}

TEST_F(L2TablesTest, AFullQueueLeavesNothingBehind) {
  ServeTables(3);
  AskAll();
  world_.executor().RunAll();
  FillerTask filler;
  while (world_.executor().Post(&filler).ok()) continue;
  world_.executor().Hold(true);
  EXPECT_THAT(AskAll(), Each(KeyStatus::kDefaultDegraded));
  world_.executor().Hold(false);
  world_.executor().RunAll();
  EXPECT_THAT(AskAll(), Each(KeyStatus::kHitL2));
}

}  // namespace
}  // namespace hps
