// Damaged, truncated and mistaken page files: a key is lost or its row is right, never absent and
// never another row.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "l3_pages/page_file.h"
#include "l3_pages/page_table.h"
#include "l3_pages/test_page_table.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 400;  // 9 rows per page
constexpr size_t kRowCount = 6'000;

class PageDamageTest : public testing::Test {
 protected:
  void SetUp() override {
    reader_ = *PageReader::Create({});
    std::mt19937_64 random(7);
    table_.Write(TestPageTable::RandomRows(kRowCount, random));
    keys_ = table_.Keys();
    description_.incarnation = kTestIncarnation;
    description_.shape = PageShape::Of(kRowBytes);
    description_.row_count = kRowCount;
    ASSERT_EQ(description_.file_bytes(), std::filesystem::file_size(table_.path()));
    ASSERT_GT(description_.index_block_count(), 1u);
  }

  std::string ReadAt(uint64_t offset, size_t size) const {
    std::ifstream file(table_.path(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    std::string bytes(size, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(size));
    EXPECT_TRUE(file.good());
    return bytes;
  }
  void WriteAt(uint64_t offset, const std::string& bytes) const {
    std::fstream file(table_.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    EXPECT_TRUE(file.good());
  }
  void FlipBit(uint64_t offset, int bit = 3) const {
    std::string byte = ReadAt(offset, 1);
    byte[0] = static_cast<char>(byte[0] ^ (1 << bit));
    WriteAt(offset, byte);
  }

  // Every key of [first, last] is lost, every other one is hit.
  void ExpectLost(const PageTable& file, const std::vector<PageKeyRange>& ranges) const {
    const TestPageTable::Answer answer = table_.Fetch(file, keys_);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const bool lost = std::any_of(ranges.begin(), ranges.end(), [&](const PageKeyRange& range) {
        return range.first <= keys_[i] && keys_[i] <= range.last;
      });
      ASSERT_EQ(answer.outcomes[i], lost ? FetchOutcome::kLost : FetchOutcome::kHit) << i;
    }
    uint64_t lost_count = 0;
    std::vector<PageKeyRange> found = *file.FindDamage();
    for (PageKeyRange& range : found) lost_count += std::exchange(range.row_count, 0);
    EXPECT_EQ(found, ranges);
    EXPECT_EQ(lost_count, answer.counts.lost);
  }
  // The keys of whole pages, and those up to the next page.
  PageKeyRange RangeOfPages(size_t first, size_t last) const {
    const size_t per_page = description_.shape.rows_per_page;
    const size_t end = (last + 1) * per_page;
    return {keys_[first * per_page], end < keys_.size() ? keys_[end] - 1 : keys_.back()};
  }

  TestPageTable table_{kRowBytes};
  std::unique_ptr<PageReader> reader_;
  std::vector<Key> keys_;
  PageFileDescription description_;
};

TEST_F(PageDamageTest, LosesTheKeysOfADamagedPage) {
  const auto file = *table_.Open(*reader_);
  const size_t last = description_.page_count() - 1;
  for (const size_t page : {size_t{0}, size_t{17}, last})
    FlipBit(description_.page_offset(page) + 100 + page);
  ExpectLost(*file, {RangeOfPages(0, 0), RangeOfPages(17, 17), RangeOfPages(last, last)});
  // Absent keys of the range are lost, too: it is unknown that they are absent.
  const PageKeyRange range = RangeOfPages(17, 17);
  ASSERT_FALSE(table_.rows().contains(range.last));
  EXPECT_EQ(table_.Fetch(*file, {range.last}).outcomes[0], FetchOutcome::kLost);
  EXPECT_EQ(table_.Fetch(*file, {RangeOfPages(16, 16).last}).outcomes[0], FetchOutcome::kAbsent);
}

// What is in the cache was verified: a damaged page is read and verified again by each fetch.
TEST_F(PageDamageTest, ADamagedPageIsNotCached) {
  const auto reader = *PageReader::Create({.cache_bytes = uint64_t{16} << 20});
  const auto file = *table_.Open(*reader);
  FlipBit(description_.page_offset(17) + 100);
  const std::vector<Key> keys(keys_.begin() + 17 * 9, keys_.begin() + 20 * 9);
  EXPECT_EQ(table_.Fetch(*file, keys).counts.lost, 9u);
  EXPECT_EQ(table_.Fetch(*file, keys).counts.lost, 9u);
  FlipBit(description_.page_offset(17) + 100);
  EXPECT_EQ(table_.Fetch(*file, keys).counts.hits, keys.size());
  // ... and one that was read before it was damaged is right as long as it stays in the cache.
  FlipBit(description_.page_offset(17) + 100);
  EXPECT_EQ(table_.Fetch(*file, keys).counts.hits, keys.size());
}

TEST_F(PageDamageTest, LosesEachByteOfAPage) {
  const auto file = *table_.Open(*reader_);
  const size_t page_bytes = description_.shape.page_bytes;
  const size_t first = 3 * description_.shape.rows_per_page;
  for (size_t byte = 0; byte < page_bytes; byte += 41) {
    FlipBit(description_.page_offset(3) + byte);
    ASSERT_EQ(table_.Fetch(*file, {keys_[first]}).outcomes[0], FetchOutcome::kLost) << byte;
    FlipBit(description_.page_offset(3) + byte);
  }
  ExpectLost(*file, {});
}

TEST_F(PageDamageTest, ScanNamesTheLostKeys) {
  FlipBit(description_.page_offset(17));
  const auto file = *table_.Open(*reader_);
  const auto cursor = *file->Scan();
  std::vector<Key> keys(100);
  std::vector<std::byte> bytes(keys.size() * kRowBytes);
  absl::StatusOr<size_t> count = 1;
  while (count.ok() && *count > 0)
    count = cursor->Next(keys, {bytes.data(), keys.size(), kRowBytes, kRowBytes}, {});
  EXPECT_TRUE(absl::IsDataLoss(count.status()));
  EXPECT_NE(count.status().message().find("page 17 is damaged"), std::string::npos)
      << count.status();
}

// Both pages are intact, but in the wrong places.
TEST_F(PageDamageTest, LosesPagesThatChangedPlaces) {
  const size_t page_bytes = description_.shape.page_bytes;
  const std::string first = ReadAt(description_.page_offset(4), page_bytes);
  const std::string second = ReadAt(description_.page_offset(5), page_bytes);
  WriteAt(description_.page_offset(4), second);
  WriteAt(description_.page_offset(5), first);
  ExpectLost(**table_.Open(*reader_), {RangeOfPages(4, 5)});
}

TEST_F(PageDamageTest, OneHeaderIsEnough) {
  for (const uint64_t offset : {uint64_t{0}, description_.footer_offset()}) {
    for (const size_t byte : {0u, 9u, 13u, 33u, 50u, 4090u}) {
      FlipBit(offset + byte);
      const auto file = table_.Open(*reader_);
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_TRUE((*file)->is_impaired());
      ExpectLost(**file, {});
      FlipBit(offset + byte);
    }
  }
  FlipBit(20);
  FlipBit(description_.footer_offset() + 20);
  const auto file = table_.OpenFile();
  EXPECT_TRUE(absl::IsDataLoss(file.status())) << file.status();
  ExpectLost(**table_.Open(*reader_), {{keys_.front(), keys_.back()}});
}

TEST_F(PageDamageTest, MakesADamagedIndexAgain) {
  for (const size_t byte : {0u, 8u, 4095u, 4096u + 11}) {
    FlipBit(description_.index_offset() + byte);
    const auto file = table_.Open(*reader_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->is_impaired());
    ExpectLost(**file, {});
    FlipBit(description_.index_offset() + byte);
  }
}

// The range of a damaged page then reaches from the row before it to the row behind it.
TEST_F(PageDamageTest, MakesADamagedIndexAgainFromDamagedPages) {
  FlipBit(description_.index_offset() + 8);
  const size_t last = description_.page_count() - 1;
  for (const size_t page : {size_t{0}, size_t{20}, size_t{21}, last})
    FlipBit(description_.page_offset(page) + 1);
  const size_t per_page = description_.shape.rows_per_page;
  ExpectLost(**table_.Open(*reader_), {RangeOfPages(0, 0),
                                       {keys_[20 * per_page - 1] + 1, RangeOfPages(20, 21).last},
                                       {keys_[last * per_page - 1] + 1, keys_.back()}});
}

TEST_F(PageDamageTest, RefusesATruncatedFile) {
  for (const uint64_t size :
       {description_.file_bytes() - 1, description_.footer_offset(), description_.index_offset(),
        description_.page_offset(100), description_.page_offset(1) - 50, uint64_t{4096},
        uint64_t{100}, uint64_t{0}}) {
    std::filesystem::resize_file(table_.path(), size);
    const auto file = table_.OpenFile();
    EXPECT_TRUE(absl::IsDataLoss(file.status())) << size << ": " << file.status();
    EXPECT_NE(file.status().message().find("truncated"), std::string::npos) << file.status();
    ExpectLost(**table_.Open(*reader_), {{keys_.front(), keys_.back()}});
  }
}

TEST_F(PageDamageTest, LosesPagesThatAreCutOffLater) {
  const auto file = *table_.Open(*reader_);
  std::filesystem::resize_file(table_.path(), description_.page_offset(10) + 1000);
  const TestPageTable::Answer answer = table_.Fetch(*file, keys_);
  for (size_t i = 0; i < keys_.size(); ++i) {
    const bool reachable = i < 10 * description_.shape.rows_per_page;
    ASSERT_EQ(answer.outcomes[i], reachable ? FetchOutcome::kHit : FetchOutcome::kLost) << i;
  }
}

TEST_F(PageDamageTest, RefusesAFileOfAnotherTableOrImport) {
  const auto open = [&](Incarnation incarnation, size_t row_bytes) {
    return PageFile::Open({table_.path(), incarnation, row_bytes, false}).status();
  };
  EXPECT_TRUE(open(kTestIncarnation, kRowBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(open(kTestIncarnation + 1, kRowBytes)));
  EXPECT_TRUE(absl::IsDataLoss(open(kTestIncarnation, kRowBytes + 4)));
  EXPECT_TRUE(absl::IsNotFound(PageFile::Open({table_.path() + "x", 1, 4, false}).status()));
}

// The keys of the other files are not affected, nor are those between the files.
TEST(PageDamageOfPartsTest, LosesTheKeysOfAMissingFile) {
  const auto reader = *PageReader::Create({});
  std::mt19937_64 random(5);
  TestPageTable table(64);
  table.Write(TestPageTable::RandomRows(3'000, random), 3);
  const std::vector<Key> keys = table.Keys();
  std::filesystem::remove(table.path(1));
  const auto opened = *table.Open(*reader);
  EXPECT_TRUE(opened->is_impaired());
  const TestPageTable::Answer answer = table.Fetch(*opened, keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool lost = i >= 1'000 && i < 2'000;
    ASSERT_EQ(answer.outcomes[i], lost ? FetchOutcome::kLost : FetchOutcome::kHit) << i;
  }
  EXPECT_EQ(*opened->FindDamage(), (std::vector<PageKeyRange>{{keys[1'000], keys[1'999], 1'000}}));
  EXPECT_EQ(opened->row_count(), 3'000u);
  // A file that has other rows than it should have is as good as missing.
  std::filesystem::copy_file(table.path(2), table.path(1));
  EXPECT_EQ(table.Fetch(**table.Open(*reader), {keys[1'500]}).outcomes[0], FetchOutcome::kLost);
  std::vector<Key> scanned(2'000);
  std::vector<std::byte> bytes(scanned.size() * 64);
  const auto end = (*opened->Scan())->Next(scanned, {bytes.data(), 2'000, 64, 64}, {});
  EXPECT_TRUE(absl::IsDataLoss(end.status())) << end.status();
}

// Any one bit anywhere: the file opens or is refused, and no answer is wrong.
TEST_F(PageDamageTest, NoFlippedBitGivesAWrongAnswer) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    const uint64_t offset = random() % description_.file_bytes();
    const int bit = static_cast<int>(random() % 8);
    FlipBit(offset, bit);
    const auto file = table_.Open(*reader_);
    ASSERT_TRUE(file.ok()) << file.status();
    const TestPageTable::Answer answer = table_.Fetch(**file, keys_);  // compares the rows
    EXPECT_EQ(answer.counts.absent + answer.counts.misses, 0u);
    EXPECT_LE(answer.counts.lost, description_.shape.rows_per_page);
    FlipBit(offset, bit);
  }
}

}  // namespace
}  // namespace hps
