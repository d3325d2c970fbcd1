#include "serving/live_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "testing/fakes/manual_executor.h"
#include "testing/fakes/observed_tables.h"
#include "testing/fakes/plain_tier.h"

namespace hps {
namespace {

using Tables = std::vector<std::shared_ptr<LiveTable>>;

class LiveModelTest : public testing::Test {
 protected:
  struct Made {
    std::shared_ptr<LiveTable> table;
    SharedTableLog log;
  };

  static Made MakeTable(const std::string& name, Incarnation incarnation) {
    auto log = std::make_shared<TableLog>();
    auto l3 = std::make_unique<PlainDurableTable>(TableSpec{.name = name, .dim = 4}, incarnation);
    LiveTable::Parts parts;
    parts.l3 = std::make_unique<ObservedDurableTable>(std::move(l3), log);
    return {std::make_shared<LiveTable>(std::move(parts)), log};
  }

  EpochDomain domain_;
  EpochDomain::Reader reader_ = *domain_.AddReader();
  ManualExecutor executor_;
  LiveModel state_{"m", domain_, executor_};
};

using LiveModelDeathTest = LiveModelTest;
TEST_F(LiveModelDeathTest, TablesAreKnownAndDifferByName) {
  EXPECT_DEATH(static_cast<void>(state_.Publish({nullptr})), "table != nullptr");
  const Tables twice = {MakeTable("m/a", 1).table, MakeTable("m/a", 2).table};
  EXPECT_DEATH(static_cast<void>(state_.Publish(twice)), "of_slot == nullptr");
}

TEST_F(LiveModelTest, RefusesMoreNamesThanItHasSlotsFor) {
  Tables tables;
  for (size_t i = 0; i <= kTablesPerStoreMax; ++i)
    tables.push_back(MakeTable("m/t" + std::to_string(i), i).table);
  EXPECT_EQ(state_.Publish(tables).code(), absl::StatusCode::kResourceExhausted);
  tables.pop_back();
  EXPECT_TRUE(state_.Publish(tables).ok());
  executor_.RunAll();
}

TEST_F(LiveModelTest, SlotsOutliveSwitches) {
  const Made a = MakeTable("m/a", 1);
  const Made b = MakeTable("m/b", 2);
  ASSERT_TRUE(state_.Publish({a.table, b.table}).ok());
  LookupCounts counts;
  counts[KeyStatus::kHitL3] = 3;
  state_.counters(state_.SlotOf("m/b")).Add(7, counts);
  const Made b2 = MakeTable("m/b", 3);
  ASSERT_TRUE(state_.Publish({b2.table}).ok());
  ASSERT_TRUE(state_.Publish({b2.table, MakeTable("m/c", 4).table, a.table}).ok());
  {
    LiveModel::Guard guard(state_, reader_);
    EXPECT_EQ(guard.snapshot().table(state_.SlotOf("m/a")), a.table.get());
    EXPECT_EQ(guard.snapshot().table(state_.SlotOf("m/b")), b2.table.get());
    EXPECT_EQ(guard.snapshot().number(), 3);
    EXPECT_EQ(guard.snapshot().table(99), nullptr);
  }
  const std::vector<TableStatistics> statistics = state_.Statistics();
  ASSERT_EQ(statistics.size(), 3);
  EXPECT_EQ(statistics[0].name, "m/b");
  EXPECT_EQ(statistics[0].keys[KeyStatus::kHitL3], 3);
  executor_.RunAll();
}

TEST_F(LiveModelTest, AGuardKeepsItsSnapshotAndItsEndFreesIt) {
  Made a = MakeTable("m/a", 1);
  ASSERT_TRUE(state_.Publish({std::move(a.table)}).ok());
  executor_.RunAll();
  {
    LiveModel::Guard guard(state_, reader_);
    ASSERT_TRUE(state_.Publish({}).ok());
    executor_.RunAll();
    ASSERT_FALSE(a.log->destroyed);
    LiveTable* table = guard.snapshot().table(0);
    ASSERT_NE(table, nullptr);
    EXPECT_TRUE(table->retired());
    EXPECT_EQ(state_.retired_count(), 1);
  }
  ASSERT_EQ(executor_.queued_count(), 1) << "freed by a task, not by the reader";
  EXPECT_FALSE(a.log->destroyed);
  executor_.RunAll();
  EXPECT_TRUE(a.log->destroyed);
  EXPECT_EQ(state_.retired_count(), 0);
}

// Catches: the end of a guard frees only what its own model has retired. A model that no lookup
// asks any more would keep its old tables for ever if another model's call ran during its switch.
TEST_F(LiveModelTest, TheEndOfAnotherModelsGuardFreesToo) {
  LiveModel other("n", domain_, executor_);
  Made a = MakeTable("m/a", 1);
  ASSERT_TRUE(state_.Publish({std::move(a.table)}).ok());
  executor_.RunAll();
  {
    LiveModel::Guard guard(other, reader_);
    ASSERT_TRUE(state_.Publish({}).ok());
    executor_.RunAll();
    EXPECT_FALSE(a.log->destroyed) << "one domain: the guard might be of this model";
  }
  executor_.RunAll();
  EXPECT_TRUE(a.log->destroyed);
  EXPECT_EQ(state_.retired_count(), 0);
}

// Would catch a pin that is not counted, or a guard's end that forgets who is pinned.
TEST_F(LiveModelTest, APinOutlivesItsGuard) {
  Made a = MakeTable("m/a", 1);
  ASSERT_TRUE(state_.Publish({std::move(a.table)}).ok());
  SnapshotPin pin;
  {
    LiveModel::Guard guard(state_, reader_);
    pin = SnapshotPin(guard);
  }
  ASSERT_TRUE(state_.Publish({}).ok());
  executor_.RunAll();
  EXPECT_FALSE(a.log->destroyed);
  SnapshotPin moved = std::move(pin);
  executor_.RunAll();
  EXPECT_FALSE(a.log->destroyed);
  moved.Release();
  executor_.RunAll();
  EXPECT_TRUE(a.log->destroyed);
}

TEST_F(LiveModelTest, AnUnchangedTableIsCarriedOver) {
  const Made a = MakeTable("m/a", 1);
  ASSERT_TRUE(state_.Publish({a.table, MakeTable("m/b", 2).table}).ok());
  ASSERT_TRUE(state_.Publish({state_.CurrentTable("m/a")}).ok());
  executor_.RunAll();
  EXPECT_FALSE(a.table->retired());
  EXPECT_FALSE(a.log->destroyed);
  EXPECT_EQ(state_.CurrentTable("m/b"), nullptr);
}

TEST(LiveTableTest, HasItsDefaultRowInBothTypes) {
  LiveTable::Parts parts;
  const TableSpec spec{.name = "m/a",
                       .dim = 1,
                       .dtype = Dtype::kBfloat16,
                       .default_row = {std::byte{0x80}, std::byte{0x3f}}};
  parts.l3 = std::make_unique<PlainDurableTable>(spec);
  const LiveTable table(std::move(parts));
  EXPECT_EQ(table.row_bytes(), 2);
  float value = 0;
  std::memcpy(&value, table.default_row_float32().data(), sizeof(value));
  EXPECT_EQ(value, 1.0F);
}

}  // namespace
}  // namespace hps
