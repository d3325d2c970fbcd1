#include "import/table_loader.h"

#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "import/formats/test_files.h"
#include "import/test_import_store.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

// Given keys with stamped rows. Counts how often rows are read.
class MemoryReader final : public TableReader {
 public:
  MemoryReader(std::vector<Key> keys, uint32_t dim) : keys_(std::move(keys)) {
    shape_ = {.row_count = keys_.size(), .dim = dim, .dtype = Dtype::kFloat32};
  }
  const TableShape& shape() const override { return shape_; }
  uint64_t data_bytes() const override { return 0; }
  const std::string& keys_path() const override { return path_; }
  absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const override {
    std::copy_n(keys_.begin() + static_cast<ptrdiff_t>(first_row), keys.size(), keys.begin());
    return absl::OkStatus();
  }
  absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const override {
    const size_t row_bytes = shape_.row_bytes();
    for (size_t i = 0; i < rows.size() / row_bytes; ++i) {
      if (first_row + i == fail_at_row) return absl::DataLossError("reader: failed");
      StampedRow::Write(1, keys_[first_row + i], 0, rows.subspan(i * row_bytes, row_bytes));
    }
    return absl::OkStatus();
  }

  uint64_t fail_at_row = UINT64_MAX;
  // Like a sparse file: claims more rows than it has keys.
  void ClaimRows(uint64_t row_count) { shape_.row_count = row_count; }

 private:
  std::vector<Key> keys_;
  TableShape shape_;
  const std::string path_ = "keys";
};

std::vector<Key> DistinctKeys(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i)
    keys[i] = static_cast<Key>((random() & ~uint64_t{0xffffff}) | i);
  return keys;
}

class TableLoaderTest : public testing::Test {
 protected:
  struct Outcome {
    absl::Status status;
    FakeRows rows;
    size_t parts = 0;
    uint64_t spilled_runs = 0;
    uint64_t merge_passes = 0;
    uint64_t memory_bytes_peak = 0;
  };

  Outcome Load(const MemoryReader& reader, uint64_t memory_bytes, size_t lanes) {
    const TableSpec spec{.name = "m/t", .dim = reader.shape().dim, .dtype = Dtype::kFloat32};
    const auto pool = WorkerPool::Create({.name = "load", .thread_count = lanes});
    HPS_CHECK(pool.ok());
    MemoryBudget budget(memory_bytes);
    FakeBulkImport import({spec});
    import.FailAfter(fail_after_rows_);
    const LoadContext context{.executor = **pool,
                              .lane_count = lanes,
                              .budget = budget,
                              .spill_directory = directory_.Path(),
                              .progress = {}};
    TableLoader loader(context, spec, reader, import, 0);
    Outcome outcome{.status = loader.Load()};
    if (outcome.status.ok()) outcome.status = import.Commit().status();
    if (outcome.status.ok()) outcome.rows = import.rows(0);
    outcome.parts = import.part_count(0);
    EXPECT_TRUE(!outcome.status.ok() || import.open_part_count() == 0);
    EXPECT_LE(import.open_parts_peak(), lanes);
    outcome.spilled_runs = loader.spilled_run_count();
    outcome.merge_passes = loader.merge_pass_count();
    outcome.memory_bytes_peak = budget.bytes_peak();
    EXPECT_TRUE(directory_.List().empty()) << "spill files have no names";
    return outcome;
  }

  static void ExpectAllRows(const Outcome& outcome, const std::vector<Key>& keys) {
    ASSERT_EQ(outcome.status, absl::OkStatus());
    ASSERT_EQ(outcome.rows.size(), keys.size());
    for (const Key key : keys) {
      const auto found = outcome.rows.find(key);
      ASSERT_NE(found, outcome.rows.end());
      ASSERT_TRUE(StampedRow::Matches(1, key, 0, AsBytes(std::string_view(found->second))));
    }
  }

  const TestDirectory directory_;
  uint64_t fail_after_rows_ = UINT64_MAX;
};

TEST_F(TableLoaderTest, SortsInMemoryIfItFits) {
  for (const size_t count : {0, 1, 2, 31, 32, 33, 4095, 4096, 4097, 16383, 16384, 40000}) {
    const std::vector<Key> keys = DistinctKeys(count, count);
    const Outcome outcome = Load(MemoryReader(keys, 4), 8 << 20, 2);
    ExpectAllRows(outcome, keys);
    EXPECT_EQ(outcome.spilled_runs, 0U);
    EXPECT_EQ(outcome.parts, count == 0 ? 0U : count < 16384 ? 1U : 2U);
    EXPECT_LE(outcome.memory_bytes_peak, uint64_t{8} << 20);
  }
}

// However many lanes there are: the store holds each part's file open.
TEST_F(TableLoaderTest, ASmallTableHasFewParts) {
  for (const bool ascending : {false, true}) {
    std::vector<Key> keys = DistinctKeys(40'000, 3);
    if (ascending) std::sort(keys.begin(), keys.end());
    const Outcome outcome = Load(MemoryReader(keys, 16), 16 << 20, 16);
    ExpectAllRows(outcome, keys);
    EXPECT_EQ(outcome.parts, 3U);
  }
}

TEST_F(TableLoaderTest, CopiesAscendingRows) {
  for (const size_t count : {1, 33, 4097, 40000}) {
    std::vector<Key> keys = DistinctKeys(count, 9);
    std::sort(keys.begin(), keys.end());
    // Less memory than the rows need: ascending rows are not buffered.
    const Outcome outcome = Load(MemoryReader(keys, 16), 2 * kImportMemoryBytesMin, 2);
    ExpectAllRows(outcome, keys);
    EXPECT_EQ(outcome.spilled_runs, 0U);
  }
}

TEST_F(TableLoaderTest, SpillsIfItDoesNotFitAndStaysWithinItsMemory) {
  const std::vector<Key> keys = DistinctKeys(100'000, 1);
  for (const size_t lanes : {1, 2, 3}) {
    const uint64_t memory_bytes = lanes * (1 << 20);
    const Outcome outcome = Load(MemoryReader(keys, 16), memory_bytes, lanes);
    ExpectAllRows(outcome, keys);
    EXPECT_GE(outcome.spilled_runs, 9U);
    EXPECT_EQ(outcome.merge_passes, 0U);
    EXPECT_EQ(outcome.parts, lanes);
    EXPECT_LE(outcome.memory_bytes_peak, memory_bytes);
    EXPECT_GE(outcome.memory_bytes_peak, memory_bytes / 2) << "memory that is there is used";
  }
}

// With the minimum memory, two runs merge at a time: many passes, the widest rows.
TEST_F(TableLoaderTest, MergesInPassesWhenRunsAreMany) {
  const std::vector<Key> keys = DistinctKeys(400, 2);
  const Outcome outcome = Load(MemoryReader(keys, 4096), 2 * kImportMemoryBytesMin, 2);
  ExpectAllRows(outcome, keys);
  EXPECT_GE(outcome.spilled_runs, 40U);
  EXPECT_GE(outcome.merge_passes, 4U);
  EXPECT_LE(outcome.memory_bytes_peak, 2 * kImportMemoryBytesMin);
}

// A sparse file may claim any number of rows, and the state of its runs would exceed the memory.
TEST_F(TableLoaderTest, MoreRunsThanCanBeKeptAreRefusedBeforeAnyIsMade) {
  std::vector<Key> keys(8192);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(keys.size() - i);
  MemoryReader reader(keys, 1);
  reader.ClaimRows(uint64_t{1} << 50);
  const Outcome outcome = Load(reader, 2 << 20, 2);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_EQ(outcome.spilled_runs, 0U);
  EXPECT_LE(outcome.memory_bytes_peak, uint64_t{2} << 20);
}

TEST_F(TableLoaderTest, ExtremeKeysAndFewDistinctDigits) {
  std::vector<Key> keys = {INT64_MAX, -1, 0, INT64_MIN, 1, -2, INT64_MIN + 1, INT64_MAX - 1};
  ExpectAllRows(Load(MemoryReader(keys, 1), 1 << 20, 2), keys);
  keys.clear();
  for (Key key = 30'000; key > 0; --key) keys.push_back(key);
  ExpectAllRows(Load(MemoryReader(keys, 16), 2 << 20, 2), keys);
}

// Duplicates in one run, in two runs, in merge passes, and among ascending keys.
TEST_F(TableLoaderTest, DuplicatesAreFoundWhereverTheyLie) {
  struct Case {
    size_t count, first, second;
    uint32_t dim;
    bool ascending;
  };
  for (const Case& c : {Case{100, 3, 97, 4, false}, Case{100'000, 5, 6, 16, false},
                        Case{100'000, 5, 99'999, 16, false}, Case{400, 7, 390, 4096, false},
                        Case{5000, 4095, 4096, 4, true}}) {
    std::vector<Key> keys = DistinctKeys(c.count, 3);
    if (c.ascending) std::sort(keys.begin(), keys.end());
    keys[c.second] = keys[c.first];
    const Outcome outcome = Load(MemoryReader(keys, c.dim), 2 << 20, 2);
    EXPECT_EQ(outcome.status,
              absl::InvalidArgumentError("keys: key " + std::to_string(keys[c.first]) +
                                         " occurs twice, at rows " + std::to_string(c.first) +
                                         " and " + std::to_string(c.second) + " (counted from 0)"));
  }
}

TEST_F(TableLoaderTest, ErrorsOfTheReaderAndOfTheStoreEndIt) {
  for (const size_t count : {1000, 100'000}) {
    std::vector<Key> keys = DistinctKeys(count, 4);
    MemoryReader reader(keys, 16);
    reader.fail_at_row = count - 10;
    EXPECT_EQ(Load(reader, 2 << 20, 2).status, absl::DataLossError("reader: failed"));
    reader.fail_at_row = UINT64_MAX;
    fail_after_rows_ = count / 2;
    EXPECT_EQ(Load(reader, 2 << 20, 2).status, absl::ResourceExhaustedError("fake: disk full"));
    fail_after_rows_ = UINT64_MAX;
    std::sort(keys.begin(), keys.end());
    MemoryReader ascending(keys, 16);
    ascending.fail_at_row = count - 10;
    EXPECT_EQ(Load(ascending, 2 << 20, 2).status, absl::DataLossError("reader: failed"));
  }
}

TEST(PlanLaneTest, EveryWidthFitsTheLeastMemory) {
  constexpr size_t kEntryBytes = sizeof(SortEntry);
  for (const size_t row_bytes : {2, 64, 512, 16384}) {
    for (const uint64_t bytes : {kImportMemoryBytesMin, uint64_t{1} << 20, uint64_t{256} << 20}) {
      const LanePlan plan = PlanLane(bytes, row_bytes);
      EXPECT_GE(plan.run_rows_max, 1U);
      EXPECT_GE(plan.merged_runs_max, 2U);
      EXPECT_LE(
          plan.run_rows_max * (std::max(row_bytes, kEntryBytes) + kEntryBytes) + plan.io_bytes,
          bytes);
    }
  }
}

}  // namespace
}  // namespace hps
