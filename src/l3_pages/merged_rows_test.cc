// Rows merged with changes, against plain maps.
#include "l3_pages/merged_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "l3_pages/test_map_changes.h"
#include "l3_pages/test_page_table.h"

namespace hps {
namespace {

constexpr size_t kTestRowBytes = 48;
// More rows than one read of the merge has.
constexpr size_t kManyRows = 20'000;
constexpr size_t kReadMax = 6'000;

class MergedRowsTest : public testing::Test {
 protected:
  // Reads the merge to its end, in steps of at most `row_count_max` rows, and compares every row.
  TestPageTable::Rows Read(const TestPageTable& source, const PlannedChanges& changes,
                           size_t row_count_max) {
    const auto table = *source.Open(*reader_);
    MapChanges cursor(changes, kTestRowBytes, 1 + random_() % 300);
    MergedRows rows(*table->Scan(), cursor, kTestRowBytes);
    TestPageTable::Rows read;
    steps_ = read_count_ = 0;
    for (;; ++steps_) {
      const auto step = rows.Next(row_count_max);
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok() || step->at_end) break;
      EXPECT_LE(step->run.keys.size(), row_count_max);
      EXPECT_LE(step->read_count, kReadMax);
      read_count_ += step->read_count;
      for (size_t i = 0; i < step->run.keys.size(); ++i) {
        const Key key = step->run.keys[i];
        const Version version = step->run.versions[i];
        EXPECT_TRUE(read.empty() || read.rbegin()->first < key) << key;
        EXPECT_TRUE(StampedRow::Matches(1, key, version, {step->run.rows.row(i), kTestRowBytes}));
        read[key] = version;
      }
    }
    return read;
  }

  const std::unique_ptr<PageReader> reader_ = *PageReader::Create({});
  std::mt19937_64 random_{17};
  size_t steps_ = 0;
  size_t read_count_ = 0;
};

TEST_F(MergedRowsTest, AgreesWithAPlainMap) {
  for (const size_t row_count : {size_t{0}, size_t{1}, size_t{63}, kManyRows}) {
    TestPageTable source(kTestRowBytes);
    source.Write(TestPageTable::RandomRows(row_count, random_));
    for (const size_t change_count : {0u, 1u, 50u, 5'000u}) {
      for (const size_t row_count_max : {size_t{1}, size_t{31}, SIZE_MAX}) {
        SCOPED_TRACE(testing::Message() << row_count << " rows, " << change_count << " changes, "
                                        << row_count_max << " at a time");
        TestPageTable::Rows expected = source.rows();
        const std::vector<Key> present = source.Keys();
        PlannedChanges changes;
        for (size_t i = 0; i < change_count; ++i) {
          const bool known = !present.empty() && random_() % 2 == 0;
          changes[known ? present[random_() % present.size()] : static_cast<Key>(random_())] =
              random_() % 3 == 0 ? kDeletion : 10 + random_() % 100;
        }
        for (const auto& [key, version] : changes) {
          expected.erase(key);
          if (version != kDeletion) expected[key] = version;
        }
        ASSERT_EQ(Read(source, changes, row_count_max), expected);
        EXPECT_EQ(read_count_, row_count + changes.size());
      }
    }
  }
}

// The caller keeps its rate and can stop between steps, so none may read a whole table.
TEST_F(MergedRowsTest, ADeletionIsAStep) {
  TestPageTable source(kTestRowBytes);
  source.Write(TestPageTable::RandomRows(kManyRows, random_));
  PlannedChanges changes;
  for (const Key key : source.Keys()) changes[key] = kDeletion;
  EXPECT_TRUE(Read(source, changes, SIZE_MAX).empty());
  EXPECT_EQ(steps_, kManyRows);
  EXPECT_EQ(read_count_, 2 * kManyRows);
}

// A change behind its place would leave the old row.
TEST_F(MergedRowsTest, RefusesChangesThatDoNotAscend) {
  class FixedChanges final : public PageChangeCursor {
   public:
    explicit FixedChanges(std::vector<Key> keys) : keys_(std::move(keys)) {}
    absl::StatusOr<PageChangeCursor::Changes> Next() override {
      return PageChangeCursor::Changes{
          keys_, deleted_, {nullptr, 2, kTestRowBytes, kTestRowBytes}, versions_};
    }

   private:
    const std::vector<Key> keys_;
    const std::vector<uint8_t> deleted_ = {1, 1};
    const std::vector<Version> versions_ = {0, 0};
  };
  TestPageTable source(kTestRowBytes);
  source.Write({{1, 0}});
  const auto table = *source.Open(*reader_);
  // The last ones ascend, but are handed out twice.
  for (const std::vector<Key>& keys :
       {std::vector<Key>{7, 3}, std::vector<Key>{7, 7}, std::vector<Key>{3, 7}}) {
    FixedChanges changes(keys);
    MergedRows rows(*table->Scan(), changes, kTestRowBytes);
    absl::Status refused;
    for (int step = 0; step < 10 && refused.ok(); ++step) refused = rows.Next(1).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
}

}  // namespace
}  // namespace hps
