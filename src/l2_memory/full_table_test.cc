// Which rows a full table takes in if the calls say how often they asked for each key.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "l2_memory/memory_tier.h"
#include "l2_memory/table_layout.h"
#include "testing/contracts/lossy_rows.h"
#include "testing/trials.h"

namespace hps {
namespace {

constexpr uint64_t kTable = 5;
constexpr size_t kRowBytes = 16;

class FullTableTest : public ::testing::Test {
 protected:
  // A table that is full of rows of negative keys.
  void Fill(uint64_t rows) {
    const uint64_t bytes = MemoryTierBytesFor(rows, kRowBytes, {});
    const auto layout = LayoutForBytes(kRowBytes, bytes, {});
    ASSERT_TRUE(layout.ok()) << layout.status();
    rows_max_ = layout->rows_max();
    auto table = MakeMemoryTier({})->OpenTable(ContractSpec(kRowBytes), 1, bytes);
    ASSERT_TRUE(table.ok()) << table.status();
    table_ = *std::move(table);
    std::map<Key, uint8_t> first;
    for (uint64_t i = 0; i < 2 * rows_max_; ++i) first[-1 - static_cast<Key>(i)] = 1;
    Insert(first, Admission::kAlways);
    ASSERT_GT(table_->Statistics().evictions, 0u);
  }

  InsertCounts Insert(const std::map<Key, uint8_t>& times_of,
                      Admission admission = Admission::kFrequent) {
    std::vector<Key> keys;
    std::vector<uint8_t> times;
    for (const auto& [key, times_asked] : times_of) {
      keys.push_back(key);
      times.push_back(times_asked);
    }
    ContractRows rows(kTable, keys, kRowBytes, 1);
    RowBatch batch = rows.batch();
    batch.admission = admission;
    batch.times_asked = times;
    const auto counts = table_->Insert(batch, 0);
    EXPECT_TRUE(counts.ok());
    return counts.value_or(InsertCounts());
  }

  std::set<Key> HeldOf(const std::vector<Key>& keys) {
    const ContractFetch fetch(*table_, keys, kRowBytes);
    std::set<Key> held;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (fetch.outcome(i) == FetchOutcome::kHit) held.insert(keys[i]);
    }
    return held;
  }

  // One call that asks for the keys, with duplicates. Returns the share that the table holds.
  double Ask(const std::vector<Key>& keys) {
    const std::set<Key> held = HeldOf(keys);
    size_t hits = 0;
    std::map<Key, uint8_t> missed;
    for (const Key key : keys) {
      if (held.contains(key)) {
        ++hits;
      } else if (missed[key] < UINT8_MAX) {
        ++missed[key];
      }
    }
    Insert(missed);
    return static_cast<double>(hits) / static_cast<double>(keys.size());
  }

  std::unique_ptr<LossyTable> table_;
  uint64_t rows_max_ = 0;
};

TEST_F(FullTableTest, AKeyThatACallAsksForTwiceEntersAtOnce) {
  Fill(2000);
  EXPECT_EQ(Insert({{1, 1}, {2, 2}, {3, 255}}).inserted, 2u);
  EXPECT_EQ(HeldOf({1, 2, 3}), (std::set<Key>{2, 3}));
  EXPECT_EQ(Insert({{1, 1}}).inserted, 1u) << "it was counted";
}

// The plain model sorts the keys by how often they were asked for.
TEST_F(FullTableTest, ABatchReplacesAPartOfTheTableByItsMostWantedRows) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t rows : {40, 300, 5000}) {
    Fill(rows);
    const size_t part = std::max<uint64_t>(1, rows_max_ / 16);
    Key next_key = 0;
    for (int round = 0; round < 50; ++round) {
      const size_t count = random() % (4 * part) + 1;
      const uint64_t times_max = random() % 6 + 2;
      std::map<Key, uint8_t> times_of;
      std::vector<Key> keys;
      std::vector<uint8_t> sorted;
      for (size_t i = 0; i < count; ++i) {
        keys.push_back(next_key++);
        sorted.push_back(times_of[keys.back()] = static_cast<uint8_t>(random() % times_max + 2));
      }
      std::sort(sorted.rbegin(), sorted.rend());
      sorted.resize(std::min(part, count));
      const InsertCounts counts = Insert(times_of);
      ASSERT_EQ(counts.inserted, sorted.size());
      ASSERT_EQ(counts.inserted + counts.not_admitted, count);
      std::vector<uint8_t> inserted;
      for (const Key key : HeldOf(keys)) inserted.push_back(times_of[key]);
      std::sort(inserted.rbegin(), inserted.rend());
      // A later row of the batch may evict an earlier one, if the sample has no older row.
      ASSERT_TRUE(std::includes(sorted.begin(), sorted.end(), inserted.begin(), inserted.end(),
                                std::greater<>()));
      ASSERT_GE(inserted.size() * 10, sorted.size() * 9 - 9);
    }
  }
}

// Keys from `first` on, more than a batch may replace rows for, asked for 2 to 7 times.
std::map<Key, uint8_t> LargeCall(Key first, uint64_t rows_max) {
  std::map<Key, uint8_t> times_of;
  for (uint64_t i = 0; i < rows_max / 16 + 5; ++i)
    times_of[first + static_cast<Key>(i)] = static_cast<uint8_t>(2 + i % 6);
  return times_of;
}

// Catches: calls that use all rows, and push out any of them for rows that they ask for less often.
TEST_F(FullTableTest, RowsOfAMomentAgoGiveWayToInsistentOnesOnly) {
  Fill(1000);
  std::vector<Key> keys;
  for (Key key = -1 - 2 * static_cast<Key>(rows_max_); key < 0; ++key) keys.push_back(key);
  const uint64_t evictions = table_->Statistics().evictions;
  constexpr Key kCalls = 100;
  for (Key call = 0; call < kCalls; ++call) {
    HeldOf(keys);
    const std::map<Key, uint8_t> asked = LargeCall(1000 * call, rows_max_);
    for (const auto& [key, times] : asked) keys.push_back(key);
    Insert(asked);
  }
  // What a call leaves out makes rows older, so that its last keys may replace some.
  EXPECT_LT(table_->Statistics().evictions - evictions, kCalls) << "of a sixteenth in each call";
  HeldOf(keys);
  std::map<Key, uint8_t> insistent = LargeCall(1'000'000, rows_max_);
  insistent[1'000'000] = 8;
  EXPECT_GT(Insert(insistent).inserted, 0u);
  EXPECT_TRUE(HeldOf({1'000'000}).contains(1'000'000));
  // The held rows are used no longer, and what is left out makes them older.
  uint64_t inserted = 0;
  for (Key first = 2'000'000; first < 2'010'000; first += 1000)
    inserted = Insert(LargeCall(first, rows_max_)).inserted;
  EXPECT_GT(inserted, 0u);
}

// Catches: a table whose rows are all in use that never takes in another row from small calls, or
// from calls that do not say how often they asked for each key.
TEST_F(FullTableTest, RowsThatAreMissedAgainEnterAHotTable) {
  Fill(1000);
  std::vector<Key> keys;
  for (Key key = -1 - 2 * static_cast<Key>(rows_max_); key < 0; ++key) keys.push_back(key);
  HeldOf(keys);
  EXPECT_EQ(Insert({{1, 1}}).inserted, 0u);
  HeldOf(keys);
  EXPECT_EQ(Insert({{1, 1}}).inserted, 1u);
  std::map<Key, uint8_t> large;
  for (Key key = 1000; key < 1100; ++key) large[key] = 1;
  Insert(large);
  HeldOf(keys);
  EXPECT_EQ(Insert(large).inserted, rows_max_ / 16);
}

// Catches: keys that no level has, which need no place of a row, counted as if they took one.
TEST_F(FullTableTest, AbsentKeysLeaveTheRowsTheirPart) {
  Fill(1000);
  std::vector<Key> keys;
  std::vector<uint8_t> absent, times;
  for (Key key = 1; key <= 300; ++key) {
    keys.push_back(key);
    absent.push_back(key > 50 ? 1 : 0);
    times.push_back(key > 50 ? 9 : 2);
  }
  ContractRows rows(kTable, keys, kRowBytes, 1);
  RowBatch batch = rows.batch();
  batch.admission = Admission::kFrequent;
  batch.absent = absent;
  batch.times_asked = times;
  ASSERT_TRUE(table_->Insert(batch, 0).ok());
  EXPECT_GE(HeldOf(keys).size(), 45u) << "of 50 rows; a row of the batch may evict an earlier one";
}

// Catches: each key counted once per call, so that a call with more misses than the table has rows
// is forgotten before the next one; and a call that pushes out the rows that it uses most.
TEST_F(FullTableTest, CallsLargerThanTheTableFindItsMostPopularRows) {
  std::mt19937_64 random(TestSeed());
  Fill(100);
  Key cold = 1'000'000;
  double last = 0;
  for (int call = 0; call < 60; ++call) {
    std::vector<Key> keys;
    for (Key hot = 0; hot < 80; ++hot) keys.insert(keys.end(), 10, hot);
    for (int i = 0; i < 200; ++i) keys.push_back(cold++);
    std::shuffle(keys.begin(), keys.end(), random);
    last = Ask(keys);
  }
  EXPECT_GT(last, 0.75) << "of at most 0.8";
  // Other keys become popular.
  for (int call = 0; call < 60; ++call) {
    std::vector<Key> keys;
    for (Key hot = 500; hot < 580; ++hot) keys.insert(keys.end(), 10, hot);
    for (int i = 0; i < 200; ++i) keys.push_back(cold++);
    last = Ask(keys);
  }
  EXPECT_GT(last, 0.75);
}

}  // namespace
}  // namespace hps
