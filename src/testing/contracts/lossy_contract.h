// The contract suite of LossyTier: tests that every implementation runs.
//
//   INSTANTIATE_TEST_SUITE_P(Memory, LossyTierContract, ::testing::Values(LossyTierFactory{
//       .name = "memory", .make = [] { return MakeMemoryTier({}); }}), LossyTierName);
//
// A lossy tier may lose any row at any time, so a miss alone proves nothing. A tier that promises
// to keep rows while it has room (`keeps`) is also tested for that.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "testing/contracts/lossy_rows.h"
#include "testing/contracts/lossy_tables.h"
#include "tier/lossy_tier.h"

namespace hps {

struct LossyTierFactory {
  std::string name;
  std::function<std::unique_ptr<LossyTier>()> make;
  // A budget with ample room for the few thousand rows of a test.
  uint64_t bytes_max = uint64_t{64} << 20;
  bool keeps = true;           // keeps all rows while there is room
  bool refuses_little = true;  // refuses budgets that are too small for a useful table
  bool counts = true;          // Statistics counts what a table holds
  bool budgeted = true;        // a table has a budget
};

inline std::string LossyTierName(const ::testing::TestParamInfo<LossyTierFactory>& info) {
  return info.param.name;
}

class LossyTierContract : public ::testing::TestWithParam<LossyTierFactory> {
 protected:
  static constexpr uint64_t kTable = 7;

  void SetUp() override { tier_ = GetParam().make(); }

  std::unique_ptr<LossyTable> Open(size_t row_bytes) {
    auto table = tier_->OpenTable(ContractSpec(row_bytes), 1, GetParam().bytes_max);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *std::move(table) : nullptr;
  }

  ContractTables OpenTables(const std::vector<size_t>& row_bytes, size_t held_count) {
    return {*tier_, row_bytes, held_count, GetParam().bytes_max / row_bytes.size()};
  }

  static std::vector<Key> Range(Key first, size_t count) {
    std::vector<Key> keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = first + static_cast<Key>(i);
    return keys;
  }

  // Every key is answered with its row of `version`; a tier that may lose rows may also miss.
  static void ExpectRows(LossyTable& table, const std::vector<Key>& keys, size_t row_bytes,
                         Version version) {
    for (const bool with_versions : {true, false}) {
      const ContractFetch fetch(table, keys, row_bytes, with_versions);
      ASSERT_TRUE(fetch.status().ok()) << fetch.status();
      for (size_t i = 0; i < keys.size(); ++i) {
        if (!GetParam().keeps && fetch.outcome(i) == FetchOutcome::kMiss) continue;
        ASSERT_TRUE(fetch.IsRowOf(i, kTable, version))
            << "key " << keys[i] << ", rows of " << row_bytes << " bytes";
      }
    }
  }
  static void ExpectMisses(LossyTable& table, const std::vector<Key>& keys, size_t row_bytes) {
    const ContractFetch fetch(table, keys, row_bytes);
    ASSERT_TRUE(fetch.status().ok()) << fetch.status();
    EXPECT_EQ(fetch.CountOf(FetchOutcome::kMiss), keys.size());
  }

  std::unique_ptr<LossyTier> tier_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LossyTierContract);

TEST_P(LossyTierContract, AnEmptyTableMissesEveryKey) {
  auto table = Open(64);
  ExpectMisses(*table, {0, -1, 1, std::numeric_limits<Key>::min(), std::numeric_limits<Key>::max()},
               64);
  ExpectMisses(*table, {}, 64);
  EXPECT_EQ(table->Statistics().entries, 0u);
}

TEST_P(LossyTierContract, AnswersWhatWasInsertedForEveryBatchSize) {
  for (const size_t count : {0, 1, 31, 32, 33, 63, 64, 65, 1000, 5000}) {
    auto table = Open(64);
    ContractRows rows(kTable, Range(-17, count), 64, 3);
    const auto counts = table->Insert(rows.batch(), 0);
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(counts->inserted + counts->held + counts->refused + counts->dropped, count);
    if (GetParam().keeps) {
      EXPECT_EQ(counts->inserted, count);
    }
    ExpectRows(*table, rows.keys(), 64, 3);
    ExpectMisses(*table, Range(100'000, count), 64);
  }
}

TEST_P(LossyTierContract, AnswersRowsOfEveryWidth) {
  for (const size_t row_bytes :
       {2, 4, 8, 14, 16, 62, 64, 66, 126, 128, 130, 512, 1000, 4096, 16384}) {
    auto table = Open(row_bytes);
    ContractRows rows(kTable, Range(-50, 100), row_bytes, 5);
    ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
    ExpectRows(*table, rows.keys(), row_bytes, 5);
    ContractRows newer(kTable, Range(-50, 100), row_bytes, 6);
    ASSERT_TRUE(table->Update(newer.batch()).ok());
    const ContractFetch fetch(*table, rows.keys(), row_bytes);
    for (size_t i = 0; i < rows.keys().size(); ++i) {
      if (GetParam().keeps || fetch.outcome(i) == FetchOutcome::kHit) {
        EXPECT_TRUE(fetch.IsRowOf(i, kTable, 6)) << row_bytes;
      }
    }
  }
}

TEST_P(LossyTierContract, EveryKeyIsLegal) {
  const std::vector<Key> keys = {0,
                                 -1,
                                 1,
                                 std::numeric_limits<Key>::min(),
                                 std::numeric_limits<Key>::max(),
                                 std::numeric_limits<Key>::min() + 1,
                                 std::numeric_limits<Key>::max() - 1,
                                 int64_t{1} << 32,
                                 -(int64_t{1} << 32)};
  auto table = Open(16);
  for (const Key key : keys) ExpectMisses(*table, {key}, 16);
  ContractRows rows(kTable, keys, 16, 1);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  ExpectRows(*table, keys, 16, 1);
  for (const Key key : keys) {
    const auto erased = table->Erase(std::span<const Key>(&key, 1));
    ASSERT_TRUE(erased.ok());
    if (GetParam().keeps) {
      EXPECT_EQ(*erased, 1u);
    }
    ExpectMisses(*table, {key}, 16);
  }
}

TEST_P(LossyTierContract, VersionsAreZeroUnlessGiven) {
  auto table = Open(32);
  ContractRows rows(kTable, Range(0, 40), 32, 0);
  ASSERT_TRUE(table->Insert(rows.batch_without_extras(), 0).ok());
  ExpectRows(*table, rows.keys(), 32, 0);
}

TEST_P(LossyTierContract, FetchAnswersDuplicatesEach) {
  auto table = Open(64);
  ContractRows rows(kTable, {5}, 64, 2);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  ExpectRows(*table, std::vector<Key>(130, 5), 64, 2);
}

TEST_P(LossyTierContract, OfDuplicatesInABatchTheLastOneWins) {
  auto table = Open(64);
  std::vector<Key> keys = Range(0, 200);
  keys.insert(keys.end(), {7, 7, 3});
  ContractRows rows(kTable, keys, 64, 10);
  rows.Stamp(200, kTable, 11);
  rows.Stamp(201, kTable, 12);
  rows.Stamp(202, kTable, 13);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  ExpectRows(*table, {7}, 64, 12);
  ExpectRows(*table, {3}, 64, 13);
  ExpectRows(*table, {4}, 64, 10);

  ContractRows update(kTable, {7, 8, 7}, 64, 20);
  update.Stamp(0, kTable, 19);
  ASSERT_TRUE(table->Update(update.batch()).ok());
  ExpectRows(*table, {7, 8}, 64, 20);
}

TEST_P(LossyTierContract, InsertLeavesHeldKeysAlone) {
  auto table = Open(64);
  ContractRows first(kTable, Range(0, 100), 64, 9);
  ASSERT_TRUE(table->Insert(first.batch(), 0).ok());
  for (const Version version : {8, 9, 10}) {
    ContractRows again(kTable, Range(0, 100), 64, version);
    const auto counts = table->Insert(again.batch(), 0);
    ASSERT_TRUE(counts.ok());
    if (GetParam().keeps) {
      EXPECT_EQ(counts->held, 100u);
    }
  }
  if (GetParam().keeps) ExpectRows(*table, first.keys(), 64, 9);
}

TEST_P(LossyTierContract, UpdateReplacesOlderVersionsOnly) {
  auto table = Open(64);
  ContractRows rows(kTable, Range(0, 100), 64, 5);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  for (const Version stale : {0, 4, 5}) {
    ContractRows update(kTable, Range(0, 100), 64, stale);
    const auto replaced = table->Update(update.batch());
    ASSERT_TRUE(replaced.ok());
    EXPECT_EQ(*replaced, 0u) << stale;
    ExpectRows(*table, rows.keys(), 64, 5);
  }
  ContractRows update(kTable, Range(50, 100), 64, 6);
  const auto replaced = table->Update(update.batch());
  ASSERT_TRUE(replaced.ok());
  if (GetParam().keeps) {
    EXPECT_EQ(*replaced, 50u);
  }
  ExpectRows(*table, Range(0, 50), 64, 5);
  ExpectRows(*table, Range(50, 50), 64, 6);
}

TEST_P(LossyTierContract, UpdateInsertsNothing) {
  auto table = Open(64);
  ContractRows update(kTable, Range(0, 100), 64, 6);
  const auto replaced = table->Update(update.batch());
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ(*replaced, 0u);
  ExpectMisses(*table, update.keys(), 64);
}

TEST_P(LossyTierContract, EraseRemovesWhatIsHeld) {
  auto table = Open(64);
  ContractRows rows(kTable, Range(0, 100), 64, 5);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  const auto erased = table->Erase(Range(90, 100));
  ASSERT_TRUE(erased.ok());
  if (GetParam().keeps) {
    EXPECT_EQ(*erased, 10u);
  }
  ExpectRows(*table, Range(0, 90), 64, 5);
  ExpectMisses(*table, Range(90, 10), 64);
  const auto again = table->Erase(Range(90, 10));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, 0u);
  // An erased key may come back, with any version: the fence decides what is too old.
  ContractRows back(kTable, Range(90, 10), 64, 2);
  ASSERT_TRUE(table->Insert(back.batch(), 0).ok());
  ExpectRows(*table, back.keys(), 64, 2);
}

TEST_P(LossyTierContract, AbsentEntriesAnswerAbsentAndYieldToChanges) {
  auto table = Open(64);
  ContractRows rows(kTable, Range(0, 100), 64, 0);
  for (size_t i = 0; i < 100; i += 2) rows.SetAbsent(i);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  const ContractFetch fetch(*table, rows.keys(), 64);
  for (size_t i = 0; i < 100; ++i) {
    if (!GetParam().keeps && fetch.outcome(i) == FetchOutcome::kMiss) continue;
    EXPECT_EQ(fetch.outcome(i), i % 2 == 0 ? FetchOutcome::kAbsent : FetchOutcome::kHit);
  }
  // Promotions leave them alone.
  ContractRows promotion(kTable, {2}, 64, 1);
  const auto counts = table->Insert(promotion.batch(), 0);
  ASSERT_TRUE(counts.ok());
  if (GetParam().keeps) {
    EXPECT_EQ(counts->held, 1u);
  }
  // Changes replace them, those of version 0 too.
  ContractRows zero(kTable, {4}, 64, 0);
  ContractRows newer(kTable, {6}, 64, 3);
  ASSERT_TRUE(table->Update(zero.batch()).ok());
  ASSERT_TRUE(table->Update(newer.batch()).ok());
  ExpectRows(*table, {4}, 64, 0);
  ExpectRows(*table, {6}, 64, 3);
  const auto erased = table->Erase(Range(8, 1));
  ASSERT_TRUE(erased.ok());
  if (GetParam().keeps) {
    EXPECT_EQ(*erased, 1u);
  }
  ExpectMisses(*table, {8}, 64);
  if (GetParam().keeps && GetParam().counts) {
    EXPECT_EQ(table->Statistics().absent_entries, 47u);
    EXPECT_EQ(table->Statistics().entries, 52u);
  }
}

TEST_P(LossyTierContract, TheFenceRefusesWhatIsOlderThanAChange) {
  auto table = Open(64);
  ASSERT_TRUE(table->RaiseWatermarks(Range(0, 10), 5, kNoDeadline).ok());
  ContractRows rows(kTable, Range(0, 10), 64, 1);
  const auto refused = table->Insert(rows.batch(), 4);
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(refused->refused, 10u);
  EXPECT_EQ(refused->inserted, 0u);
  ExpectMisses(*table, rows.keys(), 64);
  EXPECT_EQ(table->Statistics().refused, 10u);

  ASSERT_TRUE(table->Insert(rows.batch(), 5).ok());
  ExpectRows(*table, rows.keys(), 64, 1);
  // A lower raise does not lower a watermark.
  ASSERT_TRUE(table->RaiseWatermarks(Range(0, 10), 3, kNoDeadline).ok());
  ASSERT_TRUE(table->Erase(rows.keys()).ok());
  const auto still_refused = table->Insert(rows.batch(), 4);
  ASSERT_TRUE(still_refused.ok());
  EXPECT_EQ(still_refused->refused, 10u);
}

TEST_P(LossyTierContract, TheFenceRefusesAbsentEntriesToo) {
  auto table = Open(64);
  ASSERT_TRUE(table->RaiseWatermarks(Range(0, 1), 5, kNoDeadline).ok());
  ContractRows rows(kTable, {0}, 64, 0);
  rows.SetAbsent(0);
  const auto counts = table->Insert(rows.batch(), 4);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->refused, 1u);
  ExpectMisses(*table, {0}, 64);
}

TEST_P(LossyTierContract, ClearRemovesEverythingButWatermarks) {
  auto table = Open(64);
  ContractRows rows(kTable, Range(0, 1000), 64, 1);
  for (size_t i = 0; i < 1000; i += 10) rows.SetAbsent(i);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  ASSERT_TRUE(table->RaiseWatermarks(Range(0, 1), 2, kNoDeadline).ok());
  ASSERT_TRUE(table->Clear().ok());
  ExpectMisses(*table, rows.keys(), 64);
  EXPECT_EQ(table->Statistics().entries, 0u);
  EXPECT_EQ(table->Statistics().absent_entries, 0u);
  ContractRows old(kTable, {0}, 64, 1);
  const auto counts = table->Insert(old.batch(), 1);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->refused, 1u);
  ContractRows fresh(kTable, Range(0, 1000), 64, 2);
  ASSERT_TRUE(table->Insert(fresh.batch(), 2).ok());
  ExpectRows(*table, fresh.keys(), 64, 2);
}

TEST_P(LossyTierContract, StatisticsCountWhatHappened) {
  auto table = Open(64);
  ContractRows rows(kTable, Range(0, 300), 64, 1);
  ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  ContractRows update(kTable, Range(0, 100), 64, 2);
  ASSERT_TRUE(table->Update(update.batch()).ok());
  ASSERT_TRUE(table->Erase(Range(0, 50)).ok());
  const LevelStatistics statistics = table->Statistics();
  EXPECT_EQ(statistics.bytes_max, GetParam().budgeted ? GetParam().bytes_max : 0);
  EXPECT_LE(statistics.bytes_used, statistics.bytes_max);
  if (!GetParam().keeps) return;
  EXPECT_EQ(statistics.insertions, 300u);
  EXPECT_EQ(statistics.updates, 100u);
  EXPECT_EQ(statistics.evictions, 0u);
  EXPECT_EQ(statistics.dropped, 0u);
  if (!GetParam().counts) return;
  EXPECT_EQ(statistics.entries, 250u);
  EXPECT_GE(statistics.bytes_used, 250u * 64);
}

TEST_P(LossyTierContract, TablesKnowNothingOfEachOther) {
  constexpr uint64_t kTables = 8;
  std::vector<std::unique_ptr<LossyTable>> tables;
  for (uint64_t t = 0; t < kTables; ++t) {
    // The last two are incarnations of one table.
    const std::string name = "model/table" + std::to_string(t < kTables - 1 ? t : t - 1);
    auto table = tier_->OpenTable(ContractSpec(64, name), t + 1, GetParam().bytes_max / kTables);
    ASSERT_TRUE(table.ok()) << table.status();
    tables.push_back(*std::move(table));
  }
  for (uint64_t t = 0; t < kTables; ++t) {
    ContractRows rows(t, Range(0, 100), 64, t + 1);
    ASSERT_TRUE(tables[t]->RaiseWatermarks(Range(0, 100), t, kNoDeadline).ok());
    ASSERT_TRUE(tables[t]->Insert(rows.batch(), t).ok());
  }
  ASSERT_TRUE(tables[0]->Clear().ok());
  tables[1].reset();
  ExpectMisses(*tables[0], Range(0, 100), 64);
  for (uint64_t t = 2; t < kTables; ++t) {
    const ContractFetch fetch(*tables[t], Range(0, 100), 64);
    for (size_t i = 0; i < 100; ++i) {
      if (!GetParam().keeps && fetch.outcome(i) == FetchOutcome::kMiss) continue;
      ASSERT_TRUE(fetch.IsRowOf(i, t, t + 1)) << "table " << t;
    }
  }
}

TEST_P(LossyTierContract, OneCallAnswersTablesOfEveryWidth) {
  ContractTables tables = OpenTables({64, 4, 2, 512, 6, 128}, 100);
  std::vector<std::vector<Key>> keys(6, Range(-20, 150));
  keys[1].clear();
  keys[3] = std::vector<Key>(40, 7);
  keys[4].insert(keys[4].end(), {3, 3, -1, 99, 3});
  tables.ExpectAnswers(keys, GetParam().keeps);
  tables.ExpectAnswers(std::vector<std::vector<Key>>(6), GetParam().keeps);
  tables.ExpectAnswers({}, GetParam().keeps);
}

// More keys than one command, or one task of a lookup, has.
TEST_P(LossyTierContract, OneCallAnswersManyKeysOfManyTables) {
  ContractTables tables = OpenTables(std::vector<size_t>(26, 16), 1000);
  std::vector<std::vector<Key>> keys(26, Range(-100, 1200));
  keys[20] = Range(-10, 5000);
  tables.ExpectAnswers(keys, GetParam().keeps);
}

TEST_P(LossyTierContract, OneCallAnswersAbsentEntriesAndSeesChanges) {
  ContractTables tables = OpenTables({64, 32}, 50);
  ContractRows absent(1, {200}, 32, 0);
  absent.SetAbsent(0);
  ASSERT_TRUE(tables[1].Insert(absent.batch(), 0).ok());
  ContractRows newer(0, {7}, 64, 9);
  ASSERT_TRUE(tables[0].Update(newer.batch()).ok());
  const auto answers = tables.Fetch({{7}, {200}});
  if (GetParam().keeps || answers[0]->outcome(0) == FetchOutcome::kHit) {
    EXPECT_TRUE(answers[0]->IsRowOf(0, 0, 9));
  }
  if (GetParam().keeps) {
    EXPECT_EQ(answers[1]->outcome(0), FetchOutcome::kAbsent);
  }
}

TEST_P(LossyTierContract, RefusesAnInvalidSpec) {
  TableSpec spec = ContractSpec(64);
  spec.dim = 0;
  EXPECT_EQ(tier_->OpenTable(spec, 1, GetParam().bytes_max).status().code(),
            absl::StatusCode::kInvalidArgument);
  spec = ContractSpec(64, "no_model");
  EXPECT_EQ(tier_->OpenTable(spec, 1, GetParam().bytes_max).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(LossyTierContract, RefusesABudgetThatHoldsNothing) {
  for (const uint64_t bytes_max : {0, 1, 64}) {
    const auto table = tier_->OpenTable(ContractSpec(64), 1, bytes_max);
    EXPECT_EQ(table.status().code(), GetParam().refuses_little
                                         ? absl::StatusCode::kResourceExhausted
                                         : absl::StatusCode::kOk)
        << bytes_max;
  }
}

}  // namespace hps
