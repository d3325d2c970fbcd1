#include "import/row_merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/bytes.h"

namespace hps {
namespace {

class RowMergeTest : public testing::Test {
 protected:
  // Adds a run in memory whose rows are their positions. `keys` are ascending.
  void AddRun(const std::vector<Key>& keys) {
    SortedRun& run = *runs_.emplace_back(std::make_unique<SortedRun>());
    run.row_count = keys.size();
    run.first_position = next_position_;
    run.entries = *BudgetBuffer<SortEntry>::Create(budget_, keys.size());
    run.rows = *BudgetBuffer<std::byte>::Create(budget_, keys.size() * sizeof(uint64_t));
    for (size_t i = 0; i < keys.size(); ++i) {
      run.entries.elements()[i] = {ToOrderedKey(keys[i]), next_position_};
      StoreLittleEndian(&run.rows.elements()[i * sizeof(uint64_t)], next_position_);
      ++next_position_;
    }
    slices_.push_back({.run = &run, .begin = 0, .end = run.row_count});
  }

  absl::StatusOr<std::map<Key, uint64_t>> Merge(size_t batch,
                                                RepeatedKeys repeated = RepeatedKeys::kRefused) {
    RowMerge merge(slices_, sizeof(uint64_t), {}, "file", repeated);
    std::map<Key, uint64_t> merged;
    std::vector<Key> keys(batch);
    std::vector<uint64_t> positions(batch);
    std::vector<uint64_t> rows(batch);
    while (true) {
      auto count = merge.Next(keys, positions,
                              {.data = std::as_writable_bytes(std::span(rows)).data(),
                               .row_count = batch,
                               .row_bytes = 8,
                               .stride_bytes = 8});
      if (!count.ok()) return count.status();
      if (*count == 0) return merged;
      for (size_t i = 0; i < *count; ++i) {
        EXPECT_TRUE(merged.empty() || merged.rbegin()->first < keys[i]);
        EXPECT_EQ(rows[i], positions[i]);
        merged[keys[i]] = rows[i];
      }
    }
  }

  MemoryBudget budget_{16 << 20};
  std::vector<std::unique_ptr<SortedRun>> runs_;
  std::vector<RunSlice> slices_;
  uint64_t next_position_ = 0;
};

TEST_F(RowMergeTest, NoRunsGiveNoRows) {
  EXPECT_TRUE(Merge(4)->empty());
  AddRun({});
  EXPECT_TRUE(Merge(4)->empty());
}

TEST_F(RowMergeTest, MergesAnyNumberOfRuns) {
  std::mt19937_64 random(5);
  for (const size_t run_count : {1, 2, 3, 31, 32, 33}) {
    runs_.clear();
    slices_.clear();
    next_position_ = 0;
    std::vector<std::vector<Key>> keys(run_count);
    std::map<Key, uint64_t> expected;
    while (expected.size() < 3000) {
      const Key key = static_cast<Key>(random());
      if (expected.emplace(key, 0).second) keys[random() % run_count].push_back(key);
    }
    for (std::vector<Key>& run : keys) {
      std::sort(run.begin(), run.end());
      for (size_t i = 0; i < run.size(); ++i) expected[run[i]] = next_position_ + i;
      AddRun(run);
    }
    for (const size_t batch : {1, 7, 5000}) {
      const auto merged = Merge(batch);
      ASSERT_TRUE(merged.ok()) << merged.status();
      EXPECT_EQ(*merged, expected);
    }
  }
}

TEST_F(RowMergeTest, ADuplicateIsNamedWithBothPositions) {
  AddRun({-3, 5, 9});
  AddRun({4, 5});
  const auto merged = Merge(2);
  EXPECT_EQ(merged.status(), absl::InvalidArgumentError(
                                 "file: key 5 occurs twice, at rows 1 and 4 (counted from 0)"));
}

TEST_F(RowMergeTest, ADuplicateAcrossBatchesIsFoundToo) {
  AddRun({1, 2, 2, 3});
  EXPECT_EQ(Merge(2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RowMergeTest, OfKeysThatRepeatTheLastRowCounts) {
  AddRun({1, 2, 2, 3});     // positions 0 to 3
  AddRun({2, 3, 5, 5, 5});  // 4 to 8
  AddRun({0, 5});           // 9 and 10
  const std::map<Key, uint64_t> expected = {{0, 9}, {1, 0}, {2, 4}, {3, 5}, {5, 10}};
  for (const size_t batch : {1, 2, 3, 100}) {
    const auto merged = Merge(batch, RepeatedKeys::kLastCounts);
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(*merged, expected) << batch;
  }
}

}  // namespace
}  // namespace hps
