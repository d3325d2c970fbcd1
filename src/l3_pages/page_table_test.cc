// Page tables against plain maps, with io_uring and with threads, with page caches and without.
#include "l3_pages/page_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "l3_pages/test_page_table.h"

namespace hps {
namespace {

class PageTableTest : public testing::TestWithParam<TestReaderKind> {
 protected:
  void SetUp() override {
    auto reader = PageReader::Create({.use_uring = GetParam().use_uring,
                                      .thread_count = 4,
                                      .cache_bytes = GetParam().cache_bytes});
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
    if (GetParam().use_uring && !reader_->uses_uring())
      GTEST_SKIP() << "this system refuses io_uring";
  }

  std::unique_ptr<PageTable> Open(const TestPageTable& table) {
    auto file = table.Open(*reader_, GetParam().direct);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

  // Fetches random keys, in any order and with duplicates, and compares with the map.
  void FetchRandomKeys(const TestPageTable& table, const PageTable& file, size_t count) {
    const std::vector<Key> present = table.Keys();
    std::vector<Key> keys(count);
    for (Key& key : keys) {
      const bool draw = !present.empty() && random_() % 4 != 0;
      key = draw ? present[random_() % present.size()] : static_cast<Key>(random_());
      if (random_() % 8 == 0 && key != INT64_MAX) ++key;  // a neighbour, mostly absent
    }
    if (random_() % 2 == 0) std::sort(keys.begin(), keys.end());
    const TestPageTable::Answer answer = table.Fetch(file, keys);
    FetchCounts expected;
    for (size_t i = 0; i < count; ++i) {
      const bool is_present = table.rows().contains(keys[i]);
      ++(is_present ? expected.hits : expected.absent);
      ASSERT_EQ(answer.outcomes[i], is_present ? FetchOutcome::kHit : FetchOutcome::kAbsent)
          << keys[i];
    }
    EXPECT_EQ(answer.counts.hits, expected.hits);
    EXPECT_EQ(answer.counts.absent, expected.absent);
    EXPECT_EQ(answer.counts.lost + answer.counts.misses, 0u);
  }

  std::unique_ptr<PageReader> reader_;
  std::mt19937_64 random_{42};
};

TEST_P(PageTableTest, AgreesWithAPlainMap) {
  for (const size_t row_bytes : {2u, 6u, 64u, 500u, 1024u, 2048u, 4096u, 16384u}) {
    const size_t per_page = PageShape::Of(row_bytes).rows_per_page;
    for (const size_t row_count : {size_t{0}, size_t{1}, size_t{2}, per_page - 1, per_page,
                                   per_page + 1, 20 * per_page + 1}) {
      SCOPED_TRACE(testing::Message() << row_count << " rows of " << row_bytes);
      TestPageTable table(row_bytes);
      table.Write(TestPageTable::RandomRows(row_count, random_));
      const auto file = Open(table);
      ASSERT_NE(file, nullptr);
      EXPECT_EQ(file->row_count(), row_count);
      EXPECT_FALSE(file->is_impaired());
      for (const size_t count : {0u, 1u, 31u, 32u, 33u, 500u}) FetchRandomKeys(table, *file, count);
      EXPECT_EQ(table.Fetch(*file, table.Keys()).counts.hits, row_count);
      EXPECT_TRUE(file->FindDamage()->empty());
    }
  }
}

// More pages than slots, more keys than one task, and an index of several blocks.
TEST_P(PageTableTest, AnswersLargeBatches) {
  TestPageTable table(256);
  table.Write(TestPageTable::RandomRows(20'000, random_), 4);
  const auto file = Open(table);
  ASSERT_NE(file, nullptr);
  for (const size_t count : {4096u, 4097u, 30'000u}) FetchRandomKeys(table, *file, count);
}

// Positions whose keys another place has answered are left alone.
TEST_P(PageTableTest, FetchesSomeKeys) {
  TestPageTable table(64);
  table.Write(TestPageTable::RandomRows(3'000, random_), 2);
  const auto file = Open(table);
  ASSERT_NE(file, nullptr);
  const std::vector<Key> present = table.Keys();
  std::vector<Key> keys(1'000);
  for (Key& key : keys) key = present[random_() % present.size()];
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < keys.size(); i += 3) positions.push_back(i);
  std::sort(positions.begin(), positions.end(),
            [&keys](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
  std::vector<std::byte> bytes(keys.size() * 64);
  std::vector<FetchOutcome> outcomes(keys.size(), FetchOutcome::kLost);
  const auto counts = file->FetchSome({keys, {bytes.data(), keys.size(), 64, 64}, outcomes},
                                      positions, kNoDeadline);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->hits, positions.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(outcomes[i], i % 3 == 0 ? FetchOutcome::kHit : FetchOutcome::kLost);
    if (i % 3 == 0) {
      ASSERT_TRUE(
          StampedRow::Matches(1, keys[i], table.rows().at(keys[i]), {bytes.data() + i * 64, 64}));
    }
  }
  EXPECT_EQ(
      file->FetchSome({keys, {bytes.data(), keys.size(), 64, 64}, outcomes}, {}, kNoDeadline)->hits,
      0u);
}

TEST_P(PageTableTest, AnswersManyThreads) {
  TestPageTable table(64);
  table.Write(TestPageTable::RandomRows(5'000, random_));
  const auto file = Open(table);
  ASSERT_NE(file, nullptr);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      const std::vector<Key> present = table.Keys();
      for (size_t round = 0; round < 10; ++round) {
        std::vector<Key> keys(300);
        for (Key& key : keys) key = present[random() % present.size()];
        EXPECT_EQ(table.Fetch(*file, keys).counts.hits, keys.size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PageTableTest, ScansInOrder) {
  TestPageTable table(48);
  table.Write(TestPageTable::RandomRows(3'001, random_), 3);
  const auto file = Open(table);
  ASSERT_NE(file, nullptr);
  const auto cursor = file->Scan();
  ASSERT_TRUE(cursor.ok());
  std::vector<Key> keys(77);
  std::vector<Version> versions(77);
  std::vector<std::byte> bytes(77 * 48);
  auto expected = table.rows().begin();
  for (;;) {
    const auto count = (*cursor)->Next(keys, {bytes.data(), 77, 48, 48}, versions);
    ASSERT_TRUE(count.ok()) << count.status();
    if (*count == 0) break;
    for (size_t i = 0; i < *count; ++i, ++expected) {
      ASSERT_EQ(keys[i], expected->first);
      ASSERT_EQ(versions[i], expected->second);
      ASSERT_TRUE(StampedRow::Matches(1, keys[i], versions[i], {bytes.data() + i * 48, 48}));
    }
  }
  EXPECT_EQ(expected, table.rows().end());
}

// The reads that the first fetch may have left behind must not reach the rows of the second.
TEST_P(PageTableTest, KeepsToItsDeadline) {
  TestPageTable table(64);
  table.Write(TestPageTable::RandomRows(5'000, random_));
  const auto file = Open(table);
  ASSERT_NE(file, nullptr);
  const std::vector<Key> keys = table.Keys();
  std::vector<std::byte> bytes(keys.size() * 64);
  std::vector<FetchOutcome> outcomes(keys.size(), FetchOutcome::kHit);
  const auto counts = file->Fetch({keys, {bytes.data(), keys.size(), 64, 64}, outcomes},
                                  RealClock().Now() - std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(counts.status())) << counts.status();
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), FetchOutcome::kMiss),
            static_cast<std::ptrdiff_t>(keys.size()));
  // A deadline while reads are in flight: whatever was reached is right, the rest is kMiss.
  for (int round = 0; round < 20; ++round) {
    std::fill(outcomes.begin(), outcomes.end(), FetchOutcome::kLost);
    const auto ended = file->Fetch({keys, {bytes.data(), keys.size(), 64, 64}, outcomes},
                                   RealClock().Now() + std::chrono::microseconds(20 * round));
    for (size_t i = 0; i < keys.size(); ++i) {
      if (outcomes[i] == FetchOutcome::kHit) {
        ASSERT_TRUE(
            StampedRow::Matches(1, keys[i], table.rows().at(keys[i]), {bytes.data() + i * 64, 64}));
      } else {
        ASSERT_EQ(outcomes[i], FetchOutcome::kMiss);
        ASSERT_TRUE(absl::IsDeadlineExceeded(ended.status()));
      }
    }
    EXPECT_EQ(table.Fetch(*file, keys).counts.hits, keys.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, PageTableTest,
                         testing::Values(TestReaderKind{true, false}, TestReaderKind{true, true},
                                         TestReaderKind{false, false}, TestReaderKind{false, true},
                                         // all pages fit, or a few
                                         TestReaderKind{true, true, 32 << 20},
                                         TestReaderKind{false, true, 1}),
                         TestReaderName);

}  // namespace
}  // namespace hps
