#include "import/sorted_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "base/bytes.h"
#include "import/formats/test_files.h"

namespace hps {
namespace {

TEST(OrderedKeyTest, OrderIsTheSignedOne) {
  const std::vector<Key> keys = {std::numeric_limits<Key>::min(), -2, -1, 0, 1,
                                 std::numeric_limits<Key>::max()};
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(FromOrderedKey(ToOrderedKey(keys[i])), keys[i]);
    EXPECT_TRUE(i == 0 || ToOrderedKey(keys[i - 1]) < ToOrderedKey(keys[i]));
  }
}

TEST(SortEntriesTest, SortsLikeTheLibraryAndKeepsEqualKeysInOrder) {
  std::mt19937_64 random(3);
  for (const size_t count : {0, 1, 2, 31, 32, 33, 2047, 2048, 2049, 50000}) {
    // Full range, few distinct keys, one digit only, all digits but one.
    for (const uint64_t mask :
         {~uint64_t{0}, uint64_t{7}, uint64_t{0x7ff} << 22, ~uint64_t{0x7ff}, uint64_t{0}}) {
      std::vector<SortEntry> entries(count);
      for (size_t i = 0; i < count; ++i) entries[i] = {random() & mask, i};
      std::vector<SortEntry> expected = entries;
      std::stable_sort(expected.begin(), expected.end(),
                       [](const SortEntry& a, const SortEntry& b) { return a.key < b.key; });
      std::vector<SortEntry> scratch(count);
      SortEntries(entries, scratch);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(entries[i].key, expected[i].key);
        ASSERT_EQ(entries[i].position, expected[i].position);
      }
    }
  }
}

// One run of three-byte rows, in memory and spilled at some offset of the file.
class RunTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kRowBytes = 3;
  static std::string RowOf(uint64_t position) {
    return {static_cast<char>(position), static_cast<char>(position >> 8), 'r'};
  }

  void Make(const std::vector<SortEntry>& sorted, uint64_t first_position) {
    run_ = {.row_count = sorted.size(), .first_position = first_position};
    if (GetParam()) {
      std::string records = "offset";
      for (const SortEntry& entry : sorted)
        records += BytesOf<uint64_t>({entry.key, entry.position}) + RowOf(entry.position);
      file_ = *File::CreateNameless(directory_.Path());
      ASSERT_TRUE(file_->WriteAt(0, AsBytes(std::string_view(records))).ok());
      run_.spill = &*file_;
      run_.spill_offset = 6;
      return;
    }
    run_.entries = *BudgetBuffer<SortEntry>::Create(budget_, sorted.size());
    run_.rows = *BudgetBuffer<std::byte>::Create(budget_, sorted.size() * kRowBytes);
    std::copy(sorted.begin(), sorted.end(), run_.entries.elements().begin());
    for (uint64_t i = 0; i < sorted.size(); ++i)
      std::memcpy(&run_.rows.elements()[i * kRowBytes], RowOf(first_position + i).data(),
                  kRowBytes);
  }

  const TestDirectory directory_;
  MemoryBudget budget_{1 << 20};
  std::optional<File> file_;
  SortedRun run_;
};

TEST_P(RunTest, CursorsAndBoundsSeeEveryRowOnce) {
  for (const size_t count : {1, 23, 24, 25, 100}) {
    std::vector<SortEntry> sorted(count);
    for (size_t i = 0; i < count; ++i) sorted[i] = {.key = 10 * (i + 1), .position = 1000 + i};
    std::mt19937 random(1);
    for (size_t i = count; i > 1; --i)
      std::swap(sorted[i - 1].position, sorted[random() % i].position);
    Make(sorted, 1000);
    for (const size_t buffer_records : {1, 2, 7, 1000}) {
      std::vector<std::byte> buffer(buffer_records * (kRecordHeadBytes + kRowBytes) + 2);
      for (const auto& [begin, end] :
           {std::pair<size_t, size_t>{0, count}, {count / 2, count}, {0, count / 3}, {1, 1}}) {
        RunCursor cursor({.run = &run_, .begin = begin, .end = end}, kRowBytes, buffer);
        for (size_t i = begin; i < end; ++i) {
          ASSERT_EQ(cursor.Advance(), absl::OkStatus());
          ASSERT_FALSE(cursor.done());
          ASSERT_EQ(cursor.key(), sorted[i].key);
          ASSERT_EQ(cursor.position(), sorted[i].position);
          ASSERT_EQ(AsText({cursor.row(), kRowBytes}), RowOf(sorted[i].position));
        }
        ASSERT_EQ(cursor.Advance(), absl::OkStatus());
        ASSERT_TRUE(cursor.done());
      }
    }
    for (OrderedKey key = 0; key <= 10 * count + 11; ++key) {
      const auto bound = LowerBound(run_, kRowBytes, key);
      ASSERT_TRUE(bound.ok());
      ASSERT_EQ(*bound, std::min<uint64_t>(key == 0 ? 0 : (key - 1) / 10, count)) << key;
    }
  }
}

TEST_P(RunTest, ATruncatedSpillFileIsDataLoss) {
  if (!GetParam()) return;  // memory can't be truncated
  Make({{1, 0}, {2, 1}}, 0);
  run_.row_count = 3;
  std::vector<std::byte> buffer(100);
  RunCursor cursor({.run = &run_, .begin = 0, .end = 3}, kRowBytes, buffer);
  EXPECT_EQ(cursor.Advance().code(), absl::StatusCode::kDataLoss);
}

INSTANTIATE_TEST_SUITE_P(Spilled, RunTest, testing::Bool());

}  // namespace
}  // namespace hps
