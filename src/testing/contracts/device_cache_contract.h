// The contract suite of the device cache: what every implementation must do, on its device.
//
// An implementation's test program includes this header and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Host, DeviceCacheContractTest, testing::Values(setup...));
//
// This header tests single operations. It includes device_cache_contract_rows.h, which tests the
// transfer and conversion of rows, and device_cache_contract_random.h, which runs long random and
// concurrent histories.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "hps/table_spec.h"
#include "testing/contracts/device_cache_contract_fixture.h"
#include "testing/contracts/device_cache_contract_random.h"
#include "testing/contracts/device_cache_contract_rows.h"

namespace hps {

inline const std::vector<size_t>& ContractRowBytes() {
  static const std::vector<size_t> row_bytes = {1, 3, 4, 64, 127, 128, 512, 1000, 4096, 16384};
  return row_bytes;
}

TEST_P(DeviceCacheContractTest, OpenTableSaysHowManyBytesAUsefulTableNeeds) {
  for (size_t row_bytes : ContractRowBytes()) {
    for (uint64_t bytes_max : {uint64_t{0}, uint64_t{1}, uint64_t{row_bytes}}) {
      const absl::Status status = cache_->OpenTable(row_bytes, bytes_max).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      const std::string needed = std::to_string(cache_->TableBytes(row_bytes, 0));
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr(needed));
    }
    const uint64_t needed = cache_->TableBytes(row_bytes, 0);
    EXPECT_EQ(cache_->OpenTable(row_bytes, needed).status(), absl::OkStatus());
    EXPECT_EQ(cache_->OpenTable(row_bytes, needed - 1).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST_P(DeviceCacheContractTest, TheBudgetHoldsOverAllTablesAndIsGivenBack) {
  UseCache({.bytes_max = 4 << 20});
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<DeviceCacheTable>> tables;
    uint64_t bytes_used = 0;
    for (size_t i = 0;; ++i) {
      auto table = cache_->OpenTable(ContractRowBytes()[i % 7], 300 << 10);
      if (!table.ok()) {
        EXPECT_EQ(table.status().code(), absl::StatusCode::kResourceExhausted);
        break;
      }
      const LevelStatistics statistics = (*table)->Statistics();
      EXPECT_GT(statistics.bytes_used, 0u);
      EXPECT_LE(statistics.bytes_used, statistics.bytes_max);
      EXPECT_LE(statistics.bytes_used, uint64_t{300 << 10});
      bytes_used += statistics.bytes_used;
      tables.push_back(*std::move(table));
    }
    EXPECT_LE(bytes_used, uint64_t{4 << 20});
    EXPECT_GE(tables.size(), 13u);
  }
}

TEST_P(DeviceCacheContractTest, TableBytesOfAnythingIsRefusedNotWrapped) {
  const uint64_t bytes = cache_->TableBytes(kRowBytesMax, UINT64_MAX);
  EXPECT_EQ(bytes, UINT64_MAX);
  EXPECT_EQ(cache_->OpenTable(kRowBytesMax, bytes).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(DeviceCacheContractTest, HoldsRowsOfAnyWidth) {
  for (size_t row_bytes : ContractRowBytes()) {
    const StampedTable table = OpenTable(row_bytes, 400);
    Key next = 0;
    for (size_t count : {0, 1, 31, 32, 33, 100}) {
      const std::vector<Key> keys = Sequence(next, count);
      EXPECT_EQ(InsertIfAbsent(table, keys, 7), 0u);
      const ContractQuery query = Lookup(table, keys);
      EXPECT_EQ(query.counts[KeyStatus::kHitL1], count) << row_bytes;
      for (size_t i = 0; i < count; ++i) ASSERT_TRUE(query.Holds(i, 7)) << row_bytes;
      next += 1000;
    }
    EXPECT_EQ(table.table->Statistics().entries, 197u);
    EXPECT_EQ(table.table->Statistics().insertions, 197u);
  }
}

TEST_P(DeviceCacheContractTest, EveryKeyIsLegal) {
  const StampedTable table = OpenTable(16, 100);
  const std::vector<Key> keys = {0, -1, 1, INT64_MIN, INT64_MAX, INT64_MIN + 1, int64_t{1} << 32};
  EXPECT_EQ(Held(table, keys, [](Key) { return 1; }).size(), 0u);
  InsertIfAbsent(table, keys, 1);
  EXPECT_EQ(Held(table, keys, [](Key) { return 1; }), keys);
  std::vector<Key> dumped = DumpAll(table);
  EXPECT_THAT(dumped, testing::UnorderedElementsAreArray(keys));
  Erase(table, {0, INT64_MIN});
  Update(table, keys, 2);
  EXPECT_EQ(Held(table, keys, [](Key) { return 2; }),
            (std::vector<Key>{-1, 1, INT64_MAX, INT64_MIN + 1, int64_t{1} << 32}));
}

TEST_P(DeviceCacheContractTest, ALookUpAnswersEveryDuplicate) {
  const StampedTable table = OpenTable(24, 100);
  InsertIfAbsent(table, {5}, 1);
  const auto source = [](size_t, Key key) {
    return key == 9 ? BelowAnswer{KeyStatus::kHitL3, 4} : BelowAnswer{KeyStatus::kHitL2, 3};
  };
  const ContractQuery query = Lookup(table, {9, 5, 9, -2, 5, -2, 9, 5, 5}, source);
  EXPECT_THAT(query.misses, testing::UnorderedElementsAre(-2, 9));
  EXPECT_EQ(query.missed_positions, 5u);
  EXPECT_EQ(query.counts[KeyStatus::kHitL1], 4u);
  EXPECT_EQ(query.counts[KeyStatus::kHitL2], 2u);
  EXPECT_EQ(query.counts[KeyStatus::kHitL3], 3u);
  for (size_t i = 0; i < query.keys.size(); ++i) {
    const Version version = query.keys[i] == 5 ? 1 : query.keys[i] == 9 ? 4 : 3;
    EXPECT_TRUE(query.Holds(i, version)) << i;
  }
}

TEST_P(DeviceCacheContractTest, AllKeysMayBeTheSame) {
  const StampedTable table = OpenTable(512, 100);
  const std::vector<Key> same(5000, -1);
  const auto source = [](size_t, Key) { return BelowAnswer{KeyStatus::kHitL3, 2}; };
  ContractQuery query = Lookup(table, same, source);
  EXPECT_EQ(query.misses.size(), 1u);
  EXPECT_EQ(query.counts[KeyStatus::kHitL3], same.size());
  InsertIfAbsent(table, same, 2);
  EXPECT_EQ(table.table->Statistics().entries, 1u);
  query = Lookup(table, same);
  EXPECT_EQ(query.counts[KeyStatus::kHitL1], same.size());
  for (size_t i = 0; i < same.size(); ++i) ASSERT_TRUE(query.Holds(i, 2));
}

TEST_P(DeviceCacheContractTest, OfDuplicatesInABatchOneStaysWhole) {
  const StampedTable table = OpenTable(128, 100);
  std::vector<Key> keys;
  std::vector<Version> versions;
  for (Version version = 1; version <= 100; ++version) {
    keys.insert(keys.end(), {3, 4});
    versions.insert(versions.end(), 2, version);
  }
  const auto expect_one_of_them = [&](Version first, Version last) {
    const ContractQuery query = Lookup(table, {3, 4});
    ASSERT_EQ(query.counts[KeyStatus::kHitL1], 2u);
    for (size_t i = 0; i < 2; ++i) {
      const auto version = StampedRow::VersionOf(1, query.keys[i], query.row(i));
      ASSERT_TRUE(version.has_value());
      EXPECT_TRUE(*version >= first && *version <= last) << *version;
    }
  };
  StampedBatch inserted(table, keys, versions);
  ASSERT_TRUE(table.table->InsertIfAbsent(inserted.batch(), 0).ok());
  Flush(table);
  EXPECT_EQ(table.table->Statistics().entries, 2u);
  expect_one_of_them(1, 100);
  for (Version& version : versions) version += 100;
  StampedBatch updated(table, keys, versions);
  ASSERT_EQ(table.table->Update(updated.batch(), kNoDeadline), absl::OkStatus());
  Flush(table);
  expect_one_of_them(101, 200);
}

TEST_P(DeviceCacheContractTest, InsertIfAbsentLeavesHeldKeysAlone) {
  const StampedTable table = OpenTable(16, 100);
  InsertIfAbsent(table, {1, 2}, 1);
  InsertIfAbsent(table, {1, 2, 3}, 2);
  Held(table, {1, 2}, [](Key) { return 1; });
  EXPECT_EQ(Held(table, {1, 2, 3}, [](Key key) { return key == 3 ? 2 : 1; }).size(), 3u);
}

TEST_P(DeviceCacheContractTest, UpdateOverwritesHeldKeysAndInsertsNothing) {
  const StampedTable table = OpenTable(100, 100);
  InsertIfAbsent(table, {1, 2}, 5);
  Update(table, {2, 3}, 4);  // the applier orders versions, not the cache
  EXPECT_EQ(Held(table, {1, 2, 3}, [](Key key) { return key == 2 ? 4 : 5; }),
            (std::vector<Key>{1, 2}));
  EXPECT_EQ(table.table->Statistics().updates, 1u);
}

TEST_P(DeviceCacheContractTest, ErasedKeysMissUntilInsertedAgain) {
  const StampedTable table = OpenTable(16, 100);
  InsertIfAbsent(table, Sequence(0, 50), 1);
  Erase(table, Sequence(25, 50));
  EXPECT_EQ(Held(table, Sequence(0, 80), [](Key) { return 1; }), Sequence(0, 25));
  EXPECT_EQ(table.table->Statistics().entries, 25u);
  InsertIfAbsent(table, Sequence(25, 5), 2);
  EXPECT_EQ(Held(table, Sequence(0, 80), [](Key key) { return key < 25 ? 1 : 2; }),
            Sequence(0, 30));
}

TEST_P(DeviceCacheContractTest, ClearRemovesEverything) {
  const StampedTable table = OpenTable(16, 1000);
  InsertIfAbsent(table, Sequence(0, 1000), 1);
  ASSERT_EQ(table.table->Clear(), absl::OkStatus());
  Flush(table);
  EXPECT_EQ(table.table->Statistics().entries, 0u);
  EXPECT_TRUE(Held(table, Sequence(0, 1000), [](Key) { return 1; }).empty());
  EXPECT_TRUE(DumpAll(table).empty());
  InsertIfAbsent(table, Sequence(0, 10), 2);
  EXPECT_EQ(Held(table, Sequence(0, 10), [](Key) { return 2; }).size(), 10u);
}

TEST_P(DeviceCacheContractTest, WritesOfNothingDoNothing) {
  const StampedTable table = OpenTable(16, 100);
  EXPECT_EQ(InsertIfAbsent(table, {}, 1), 0u);
  Update(table, {}, 1);
  Erase(table, {});
  EXPECT_EQ(table.table->RaiseWatermarks({}, 1, kNoDeadline), absl::OkStatus());
  EXPECT_EQ(table.table->Statistics().entries, 0u);
  const ContractQuery query = Lookup(table, {});
  EXPECT_EQ(query.counts.total(), 0u);
  EXPECT_TRUE(query.misses.empty());
  Lookup(std::span<ContractQuery>(), LookupPlan());
}

TEST_P(DeviceCacheContractTest, ABatchMayBeLargerThanTheCache) {
  const StampedTable table = OpenSmallestTable(64);
  const std::vector<Key> keys = Sequence(-2500, 5000);
  InsertIfAbsent(table, keys, 1);
  const std::vector<Key> held = Held(table, keys, [](Key) { return 1; });
  const LevelStatistics statistics = table.table->Statistics();
  EXPECT_GE(held.size(), 7u);
  EXPECT_EQ(statistics.entries, held.size());
  EXPECT_EQ(statistics.insertions + statistics.dropped, keys.size());
  EXPECT_EQ(statistics.insertions - statistics.evictions, held.size());
  EXPECT_THAT(DumpAll(table), testing::UnorderedElementsAreArray(held));
}

// Catches: one pass over cold keys that pushes the rows out which lookups use.
TEST_P(DeviceCacheContractTest, OnePassOverColdKeysLeavesAFullTableAsItWas) {
  const StampedTable table = OpenTable(16, 3000);
  const std::vector<Key> hot = Sequence(0, 10'000);
  InsertIfAbsent(table, hot, 1);
  const size_t held_before = Lookup(table, hot).counts[KeyStatus::kHitL1];
  const LevelStatistics full = table.table->Statistics();
  EXPECT_EQ(full.entries, held_before);
  InsertIfAbsent(table, Sequence(1'000'000, 20'000), 1, 0, Admission::kFrequent);
  EXPECT_GE(Lookup(table, hot).counts[KeyStatus::kHitL1], held_before * 9 / 10);
  const LevelStatistics after = table.table->Statistics();
  EXPECT_EQ(after.insertions - full.insertions + after.not_admitted, 20'000u);
  EXPECT_EQ(after.dropped, 0u);
  EXPECT_EQ(after.entries, full.entries + (after.insertions - full.insertions) -
                               (after.evictions - full.evictions));
}

TEST_P(DeviceCacheContractTest, AFullTableTakesInWhatIsAskedForAgain) {
  const StampedTable table = OpenTable(16, 3000);
  InsertIfAbsent(table, Sequence(0, 10'000), 1);
  const std::vector<Key> wanted = Sequence(1'000'000, 300);
  InsertIfAbsent(table, wanted, 1, 0, Admission::kFrequent);
  EXPECT_LT(Lookup(table, wanted).counts[KeyStatus::kHitL1], 30u);
  InsertIfAbsent(table, wanted, 1, 0, Admission::kFrequent);
  EXPECT_GT(Lookup(table, wanted).counts[KeyStatus::kHitL1], 240u);
}

TEST_P(DeviceCacheContractTest, ATableWithRoomTakesInEveryRow) {
  const StampedTable table = OpenTable(16, 10'000);
  const std::vector<Key> keys = Sequence(0, 10'000);
  InsertIfAbsent(table, keys, 1, 0, Admission::kFrequent);
  EXPECT_GE(Lookup(table, keys).counts[KeyStatus::kHitL1], 9'990u);
}

TEST_P(DeviceCacheContractTest, WhatMayOnlyTakeFreePlacesEvictsNothing) {
  const StampedTable table = OpenTable(16, 3000);
  const std::vector<Key> keys = Sequence(0, 10'000);
  for (int round = 0; round < 2; ++round) InsertIfAbsent(table, keys, 1, 0, Admission::kIfRoom);
  const LevelStatistics statistics = table.table->Statistics();
  EXPECT_EQ(statistics.evictions, 0u);
  EXPECT_EQ(statistics.entries, statistics.insertions);
  EXPECT_GT(statistics.entries, 3000u);
  EXPECT_EQ(statistics.insertions + statistics.dropped, 20'000u - statistics.entries);
  EXPECT_EQ(statistics.not_admitted, 0u);
}

TEST_P(DeviceCacheContractTest, OutputsMayBeMisalignedAndStrided) {
  for (size_t row_bytes : ContractRowBytes()) {
    const StampedTable table = OpenTable(row_bytes, 100);
    StampedBatch batch(table, Sequence(0, 30), std::vector<Version>(30, 1), 5);
    ASSERT_TRUE(table.table->InsertIfAbsent(batch.batch(), 0).ok());
    Flush(table);
    const auto source = [](size_t, Key) { return BelowAnswer{KeyStatus::kHitL2, 1}; };
    for (size_t offset : {1, 2, 4, 8, 15}) {
      ContractQuery query{.table = &table,
                          .keys = Sequence(0, 40),
                          .padding_bytes = offset == 8 ? 0 : 3 * offset,
                          .offset_bytes = offset};
      Lookup({&query, 1}, {.source = source});
      EXPECT_EQ(query.counts[KeyStatus::kHitL1], 30u);
      for (size_t i = 0; i < 40; ++i) ASSERT_TRUE(query.Holds(i, 1)) << row_bytes << " " << offset;
    }
  }
}

TEST_P(DeviceCacheContractTest, OneCallAsksManyTablesOfDifferentWidths) {
  std::vector<StampedTable> tables;
  for (size_t row_bytes : ContractRowBytes())
    tables.push_back(OpenTable(row_bytes, 100, 100 + row_bytes));
  for (const StampedTable& table : tables) InsertIfAbsent(table, Sequence(0, 50), 1);
  std::vector<ContractQuery> queries;
  for (size_t i = 0; i < tables.size(); ++i) {
    queries.push_back({.table = &tables[i], .keys = Sequence(40, i * 7)});
    queries.push_back({.table = &tables[i],
                       .keys = Sequence(45, 10),
                       .wants_status = i % 2 == 0,
                       .bypassed = i % 3 == 0});
  }
  const auto source = [](size_t, Key key) {
    return key % 2 == 0 ? BelowAnswer{KeyStatus::kHitL3, 9} : BelowAnswer{};
  };
  Lookup(queries, {.source = source, .piece_keys = 3});
  for (const ContractQuery& query : queries) {
    const auto missed =
        static_cast<size_t>(std::count_if(query.keys.begin(), query.keys.end(),
                                          [&](Key key) { return query.bypassed || key >= 50; }));
    EXPECT_EQ(query.misses.size(), missed);
    EXPECT_EQ(query.counts[KeyStatus::kHitL1], query.keys.size() - missed);
    for (size_t i = 0; i < query.keys.size(); ++i) {
      if (query.keys[i] < 50 && !query.bypassed) {
        EXPECT_TRUE(query.Holds(i, 1));
      } else if (query.keys[i] % 2 == 0) {
        EXPECT_TRUE(query.Holds(i, 9));
      } else {
        EXPECT_THAT(query.row(i), testing::Each(std::byte{0}));
      }
    }
  }
}

TEST_P(DeviceCacheContractTest, WhatHasNoRowGetsTheDefaultRow) {
  const StampedTable table = OpenTable(20, 100);
  std::vector<std::byte> default_row(20);
  for (size_t i = 0; i < default_row.size(); ++i) default_row[i] = std::byte(i + 1);
  const auto source = [](size_t, Key key) {
    constexpr KeyStatus kStatuses[] = {KeyStatus::kAbsent, KeyStatus::kHitL2, KeyStatus::kHitL3,
                                       KeyStatus::kDefaultPending, KeyStatus::kDefaultDegraded};
    return BelowAnswer{kStatuses[key % 5], 1};
  };
  for (const auto& wanted : {default_row, std::vector<std::byte>()}) {
    ContractQuery query{.table = &table, .keys = Sequence(0, 50), .default_row = wanted};
    Lookup({&query, 1}, {.source = source, .piece_keys = 7});
    for (size_t status = 0; status < kKeyStatusCount; ++status)
      EXPECT_EQ(query.counts.by_status[status], status == 1 ? 0u : 10u);
    for (size_t i = 0; i < query.keys.size(); ++i) {
      EXPECT_EQ(query.statuses[i], source(0, query.keys[i]).status);
      if (query.keys[i] % 5 == 1 || query.keys[i] % 5 == 2) {
        EXPECT_TRUE(query.Holds(i, 1));
      } else {
        const std::vector<std::byte> row(query.row(i).begin(), query.row(i).end());
        EXPECT_EQ(row, wanted.empty() ? std::vector<std::byte>(20) : wanted);
      }
    }
  }
}

// Without the second probe, a reader that missed while another one promoted and a change passed
// would see the new row now and the old one, from the cache, next time.
TEST_P(DeviceCacheContractTest, ProbingAgainPrefersWhatTheCacheHoldsByNow) {
  const StampedTable table = OpenTable(16, 100);
  const auto source = [](size_t, Key) { return BelowAnswer{KeyStatus::kHitL3, 2}; };
  for (bool reprobe : {false, true}) {
    ContractQuery query{.table = &table, .keys = {1, 2, 1, 3}};
    Lookup({&query, 1}, {.source = source,
                         .before_finish =
                             [&] {
                               InsertIfAbsent(table, {1, 3}, 1);
                             },
                         .reprobe = [=] { return reprobe; }});
    EXPECT_EQ(query.missed_positions, 4u);
    EXPECT_EQ(query.counts[KeyStatus::kHitL1], reprobe ? 3u : 0u);
    EXPECT_EQ(query.counts[KeyStatus::kHitL3], reprobe ? 1u : 4u);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(query.Holds(i, reprobe && query.keys[i] != 2 ? 1 : 2)) << i;
    ASSERT_EQ(table.table->Clear(), absl::OkStatus());
    Flush(table);
  }
}

TEST_P(DeviceCacheContractTest, TheFenceRefusesPromotionsOlderThanAChange) {
  const StampedTable table = OpenTable(16, 100);
  const std::vector<Key> changed = {1, -1};
  ASSERT_EQ(table.table->RaiseWatermarks(changed, 5, kNoDeadline), absl::OkStatus());
  EXPECT_EQ(InsertIfAbsent(table, changed, 1, 4), 2u);
  EXPECT_TRUE(Held(table, changed, [](Key) { return 1; }).empty());
  EXPECT_EQ(table.table->Statistics().refused, 2u);
  // Watermarks outlive the table's rows.
  ASSERT_EQ(table.table->Clear(), absl::OkStatus());
  EXPECT_EQ(InsertIfAbsent(table, changed, 1, 4), 2u);
  EXPECT_EQ(InsertIfAbsent(table, changed, 2, 5), 0u);
  EXPECT_EQ(Held(table, changed, [](Key) { return 2; }), changed);
}

TEST_P(DeviceCacheContractTest, TheFenceKeepsErasedKeysOut) {
  const StampedTable table = OpenTable(16, 100);
  InsertIfAbsent(table, {1}, 1);
  const std::vector<Key> erased = {1};
  ASSERT_EQ(table.table->RaiseWatermarks(erased, 1, kNoDeadline), absl::OkStatus());
  Erase(table, erased);
  EXPECT_EQ(InsertIfAbsent(table, {1}, 1, 0), 1u);
  EXPECT_TRUE(Held(table, {1}, [](Key) { return 1; }).empty());
}

TEST_P(DeviceCacheContractTest, DumpsEveryKeyOnce) {
  const StampedTable table = OpenTable(4, 3000);
  EXPECT_TRUE(DumpAll(table).empty());
  InsertIfAbsent(table, Sequence(-1500, 3000), 1);
  const std::vector<Key> held = Held(table, Sequence(-1500, 3000), [](Key) { return 1; });
  for (size_t buffer_keys : {DeviceCacheTable::kDumpKeysMin, size_t{1000}, size_t{100'000}})
    EXPECT_THAT(DumpAll(table, buffer_keys), testing::UnorderedElementsAreArray(held));
}

TEST_P(DeviceCacheContractTest, ADumpEndsBeyondTheEnd) {
  const StampedTable table = OpenTable(4, 100);
  InsertIfAbsent(table, {1}, 1);
  std::vector<Key> buffer(DeviceCacheTable::kDumpKeysMin);
  uint64_t cursor = UINT64_MAX;
  const auto count = table.table->Dump(&cursor, buffer, kNoDeadline);
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 0u);
}

TEST_P(DeviceCacheContractTest, CallsComeFromABoundedPool) {
  UseCache({.calls_max = 3, .call_keys_max = 10});
  EXPECT_EQ(cache_->AcquireCall(11).status().code(), absl::StatusCode::kResourceExhausted);
  for (int round = 0; round < 2; ++round) {
    std::vector<DeviceCallLease> calls;
    for (int i = 0; i < 3; ++i) {
      auto call = cache_->AcquireCall(10);
      ASSERT_TRUE(call.ok()) << call.status();
      calls.push_back(*std::move(call));
    }
    EXPECT_EQ(cache_->AcquireCall(0).status().code(), absl::StatusCode::kResourceExhausted);
    calls.pop_back();
    EXPECT_TRUE(cache_->AcquireCall(10).ok());
  }
}

TEST_P(DeviceCacheContractTest, OneCallForAPieceAheadIsLentBeyondThem) {
  UseCache({.calls_max = 2, .call_keys_max = 10});
  for (int round = 0; round < 3; ++round) {
    auto ahead = *cache_->AcquireCallAhead(10);
    EXPECT_EQ(cache_->AcquireCallAhead(0).status().code(), absl::StatusCode::kResourceExhausted);
    const DeviceCallLease first = *cache_->AcquireCall(10);
    const DeviceCallLease second = *cache_->AcquireCall(10);
    EXPECT_EQ(cache_->AcquireCall(0).status().code(), absl::StatusCode::kResourceExhausted);
    ahead.reset();
    EXPECT_EQ(cache_->AcquireCall(0).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(cache_->AcquireCallAhead(10).ok());
  }
}

// Rows that a level lacks in the middle of a piece come later, in a piece that covers the whole
// range again.
TEST_P(DeviceCacheContractTest, PiecesMayLeaveKeysForLaterOnes) {
  const StampedTable table = OpenTable(16, 1000);
  ContractQuery query{.table = &table, .keys = Sequence(0, 200)};
  query.keys.push_back(7);
  const QueryBuffers buffers(*memory_, query);
  const DeviceCacheQuery request = buffers.Request(query);
  auto call = *cache_->AcquireCall(query.keys.size());
  ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
  const DeviceMisses misses = *call->Misses(kNoDeadline);
  ASSERT_EQ(misses.keys[0].size(), 200u);
  const HostRows rows = call->Staging(0, 200);
  ASSERT_EQ(rows.row_count, 200u);
  for (size_t turn : {0, 1, 2}) {
    std::vector<KeyStatus> statuses(200, kUnanswered);
    for (size_t i = turn; i < 200; i += 3) {
      statuses[i] = turn == 2 ? KeyStatus::kAbsent : KeyStatus::kHitL2;
      StampedRow::Write(table.number, misses.keys[0][i], 1, {rows.row(i), 16});
    }
    const DeviceRowPiece piece{.statuses = statuses, .rows = rows};
    ASSERT_EQ(call->Finish({&piece, 1}), absl::OkStatus());
    if (turn < 2) {
      ASSERT_EQ(call->Wait(kNoDeadline).code(), absl::StatusCode::kFailedPrecondition);
    }
  }
  ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
  buffers.TakeAnswers(query);
  size_t absent = 0;
  for (size_t i = 0; i < query.keys.size(); ++i) {
    if (query.statuses[i] == KeyStatus::kAbsent) ++absent;
    ASSERT_TRUE(query.statuses[i] == KeyStatus::kAbsent || query.Holds(i, 1)) << i;
  }
  EXPECT_EQ(call->counts(0)[KeyStatus::kAbsent], absent);
  EXPECT_EQ(call->counts(0)[KeyStatus::kHitL2], query.keys.size() - absent);
}

}  // namespace hps
