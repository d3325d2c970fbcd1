// Merges against plain maps; merges that fail, are cancelled, or meet damage.
#include "l3_pages/page_merge.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "l3_pages/page_file_writer.h"
#include "l3_pages/test_map_changes.h"
#include "l3_pages/test_page_table.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

constexpr size_t kMergeRowBytes = 48;

class PageMergeTest : public testing::Test {
 protected:
  void SetUp() override { reader_ = *PageReader::Create({}); }
  ~PageMergeTest() override { FaultPoints::DisarmAll(); }

  std::string path(const std::string& name = "merged") const { return directory_.Path(name); }
  PageMergeOptions Options(const std::string& name = "merged") const {
    return {path(name), kTestIncarnation, 0};
  }
  absl::StatusOr<PageFileDescription> Merge(const PageTable& table, const PlannedChanges& changes,
                                            const PageMergeOptions& options) {
    MapChanges cursor(changes, kMergeRowBytes, 1 + random_() % 300);
    Latch never(1);
    return MergePages(table, cursor, options, never);
  }
  std::unique_ptr<PageTable> Open(const std::string& file, const PageFileDescription& description) {
    std::vector<PageTable::Part> parts;
    if (description.row_count > 0) {
      parts.push_back({file, description.row_count, description.first_key, description.last_key});
    }
    return *PageTable::Open({kTestIncarnation, kMergeRowBytes, false, parts}, *reader_);
  }

  static void ExpectRows(const PageTable& table, const TestPageTable::Rows& expected) {
    EXPECT_EQ(table.row_count(), expected.size());
    EXPECT_TRUE(table.FindDamage()->empty());
    const auto cursor = *table.Scan();
    std::vector<Key> keys(expected.size() + 1);
    std::vector<Version> versions(keys.size());
    std::vector<std::byte> rows(keys.size() * kMergeRowBytes);
    const auto count =
        cursor->Next(keys, {rows.data(), keys.size(), kMergeRowBytes, kMergeRowBytes}, versions);
    ASSERT_TRUE(count.ok()) << count.status();
    ASSERT_EQ(*count, expected.size());
    size_t i = 0;
    for (const auto& [key, version] : expected) {
      ASSERT_EQ(keys[i], key);
      ASSERT_EQ(versions[i], version);
      ASSERT_TRUE(
          StampedRow::Matches(1, key, version, {&rows[i * kMergeRowBytes], kMergeRowBytes}));
      ++i;
    }
  }

  // Changes of present and of absent keys.
  PlannedChanges RandomChanges(const TestPageTable::Rows& rows, size_t count) {
    std::vector<Key> present;
    for (const auto& [key, version] : rows) present.push_back(key);
    PlannedChanges changes;
    for (size_t i = 0; i < count; ++i) {
      const bool draw = !present.empty() && random_() % 2 == 0;
      const Key key = draw ? present[random_() % present.size()]
                           : static_cast<Key>(random_() % 2 == 0 ? random_() % 10'000 : random_());
      changes[key] = random_() % 3 == 0 ? kDeletion : 10 + random_() % 100;
    }
    return changes;
  }
  static void Apply(const PlannedChanges& changes, TestPageTable::Rows& rows) {
    for (const auto& [key, version] : changes) {
      if (version == kDeletion) {
        rows.erase(key);
      } else {
        rows[key] = version;
      }
    }
  }

  const TestDirectory directory_;
  std::unique_ptr<PageReader> reader_;
  std::mt19937_64 random_{17};
};

// Merge upon merge.
TEST_F(PageMergeTest, AgreesWithAPlainMap) {
  for (const size_t row_count : {0u, 1u, 63u, 20'000u}) {
    TestPageTable::Rows rows = TestPageTable::RandomRows(row_count, random_);
    TestPageTable source(kMergeRowBytes);
    source.Write(rows, row_count > 100 ? 3 : 1);
    std::unique_ptr<PageTable> table = *source.Open(*reader_);
    for (const size_t change_count : {0u, 1u, 50u, 5'000u, 100u}) {
      SCOPED_TRACE(testing::Message() << row_count << " rows, " << change_count << " changes");
      const PlannedChanges changes = RandomChanges(rows, change_count);
      Apply(changes, rows);
      const std::string name = std::to_string(random_());
      const auto merged = Merge(*table, changes, Options(name));
      ASSERT_TRUE(merged.ok()) << merged.status();
      ASSERT_EQ(merged->row_count, rows.size());
      EXPECT_EQ(directory_.Has(name), !rows.empty());
      table = Open(path(name), *merged);
      ASSERT_NO_FATAL_FAILURE(ExpectRows(*table, rows));
    }
  }
}

TEST_F(PageMergeTest, DeletesAllRows) {
  TestPageTable source(kMergeRowBytes);
  source.Write({{1, 0}, {2, 0}, {3, 0}});
  const auto table = *source.Open(*reader_);
  const auto merged =
      Merge(*table, {{1, kDeletion}, {2, kDeletion}, {3, kDeletion}, {4, kDeletion}}, Options());
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->row_count, 0u);
  EXPECT_EQ(directory_.List(), std::vector<std::string>{});
}

// Rows of a damaged page would be missing in the new file, and then be absent instead of lost.
TEST_F(PageMergeTest, RefusesADamagedTable) {
  TestPageTable source(kMergeRowBytes);
  source.Write(TestPageTable::RandomRows(5'000, random_));
  const auto table = *source.Open(*reader_);
  {
    std::fstream file(source.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(kPageBlockBytes * 31 + 5));
    file.put('\x5a');
  }
  const auto merged = Merge(*table, {{5, 1}}, Options());
  EXPECT_TRUE(absl::IsDataLoss(merged.status())) << merged.status();
  EXPECT_NE(merged.status().message().find("page 30 is damaged"), std::string::npos)
      << merged.status();
  EXPECT_EQ(directory_.List(), std::vector<std::string>{});
}

// Merges of many rows and some changes that do not end well.
class FailedPageMergeTest : public PageMergeTest {
 protected:
  FailedPageMergeTest() { source_.Write(rows_); }

  const TestPageTable::Rows rows_ = TestPageTable::RandomRows(20'000, random_);
  const PlannedChanges changes_ = RandomChanges(rows_, 500);
  TestPageTable source_{kMergeRowBytes};
};

TEST_F(FailedPageMergeTest, LeavesNothingWhenACallFails) {
  const auto table = *source_.Open(*reader_);
  for (const char* point : {"l3_pages.read.call", "l3_pages.create.call", "l3_pages.write.call",
                            "l3_pages.finish.before_header", "l3_pages.sync.call"}) {
    FaultPoints::Arm(point, {FaultAction::kFail, absl::UnavailableError("planned")});
    const auto merged = Merge(*table, changes_, Options());
    EXPECT_TRUE(absl::IsUnavailable(merged.status())) << point << ": " << merged.status();
    FaultPoints::DisarmAll();
    EXPECT_EQ(directory_.List(), std::vector<std::string>{}) << point;
  }
  directory_.Write("merged", "precious");
  EXPECT_TRUE(absl::IsAlreadyExists(Merge(*table, changes_, Options()).status()));
  EXPECT_EQ(directory_.Read("merged"), "precious");
  ExpectRows(*table, rows_);
}

// A killed merge leaves the table as it was, and a file that does not open or has all rows.
using PageMergeDeathTest = FailedPageMergeTest;
TEST_F(PageMergeDeathTest, AnyStepMayBeTheLast) {
  const auto table = *source_.Open(*reader_);
  TestPageTable::Rows merged_rows = rows_;
  Apply(changes_, merged_rows);
  const auto expected = Merge(*table, changes_, Options("expected"));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* step : {"read.call", "create.after", "write.before_piece", "write.call",
                           "finish.before_header", "finish.before_sync", "finish.after_sync"}) {
    SCOPED_TRACE(step);
    std::filesystem::remove(path());
    EXPECT_EXIT(
        {
          FaultPoints::Arm(std::string("l3_pages.") + step, {.action = FaultAction::kAbort});
          static_cast<void>(Merge(*table, changes_, Options()));
        },
        testing::KilledBySignal(SIGKILL), "");
    ExpectRows(*table, rows_);
    const auto opened = PageFile::Open({path(), kTestIncarnation, kMergeRowBytes, false});
    if (opened.ok()) {
      ExpectRows(*Open(path(), *expected), merged_rows);
    } else {
      EXPECT_TRUE(absl::IsDataLoss(opened.status()) || absl::IsNotFound(opened.status()))
          << opened.status();
    }
  }
  EXPECT_TRUE(directory_.Has("merged"));  // by the last steps
}

TEST_F(PageMergeTest, EndsWhenItIsCancelled) {
  TestPageTable source(kMergeRowBytes);
  source.Write(TestPageTable::RandomRows(20'000, random_));
  const auto table = *source.Open(*reader_);
  // One byte per second: the merge waits after its first read, for hours.
  PageMergeOptions slow = Options();
  slow.bytes_per_second = 1;
  Latch cancel(1);
  absl::Status ended;
  std::thread merge([&] {
    const PlannedChanges none;
    MapChanges changes(none, kMergeRowBytes, 1);
    ended = MergePages(*table, changes, slow, cancel).status();
  });
  cancel.CountDown();
  merge.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_EQ(directory_.List(), std::vector<std::string>{});
}

// Asked between the reads of both sources.
TEST_F(PageMergeTest, EndsWhenItsCheckFails) {
  PlannedChanges changes;
  for (Key key = 0; key < 100; ++key) changes[key] = 5;
  PageMergeOptions options = Options();
  options.check = [] { return absl::ResourceExhaustedError("no room"); };
  const auto table = Open("", {});
  const auto merged = Merge(*table, changes, options);
  EXPECT_TRUE(absl::IsResourceExhausted(merged.status())) << merged.status();
  EXPECT_FALSE(directory_.Has("merged"));
}

}  // namespace
}  // namespace hps
