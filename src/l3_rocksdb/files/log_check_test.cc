#include "l3_rocksdb/files/log_check.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr size_t kBlockBytes = 32 << 10;

// A WAL file as RocksDB writes it, with batches of the given sizes.
std::string MakeLog(const std::vector<size_t>& batches) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/db";
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* raw = nullptr;
  EXPECT_TRUE(rocksdb::DB::Open(options, path, &raw).ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  std::mt19937_64 random(7);
  for (const size_t bytes : batches) {
    std::string value(bytes, '\0');
    for (char& c : value) c = static_cast<char>(random());
    EXPECT_TRUE(db->Put({}, "key", value).ok());
  }
  std::string log;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".log") continue;
    EXPECT_TRUE(
        rocksdb::ReadFileToString(rocksdb::Env::Default(), entry.path().string(), &log).ok());
  }
  return log;
}

// A record that crosses the end of a block, then small records.
const std::string& SampleLog() {
  static const std::string log = [] {
    std::vector<size_t> batches(24, 1200);
    batches.insert(batches.end(), {3000, 10, 100, 200, 1, 0, 31, 32, 33});
    return MakeLog(batches);
  }();
  return log;
}

TEST(LogCheckTest, TheSampleGoesOverTheEndOfABlock) {
  EXPECT_GT(SampleLog().size(), kBlockBytes);
  EXPECT_LT(SampleLog().size(), kBlockBytes + 4096);
  EXPECT_FALSE(CheckLogBytes(SampleLog(), false).has_value());
  EXPECT_FALSE(CheckLogBytes({}, false).has_value());
}

// Catches: the torn record of a killed process reported as damage.
TEST(LogCheckTest, ALogThatIsCutAtAnyByteIsTornAndNotDamaged) {
  const std::string_view log = SampleLog();
  std::vector<size_t> whole_records;
  for (size_t bytes = 0; bytes <= log.size(); ++bytes) {
    const auto damage = CheckLogBytes(log.substr(0, bytes), true);
    ASSERT_FALSE(damage.has_value()) << "cut at " << bytes << ": " << damage->what;
    if (!CheckLogBytes(log.substr(0, bytes), false).has_value()) whole_records.push_back(bytes);
  }
  // Without may_be_torn the log may end after any record, and in the unused end of a block.
  EXPECT_GE(whole_records.size(), 33u);
  EXPECT_LE(whole_records.size(), 33u + 1 + 6);
}

// Catches: a record with a damaged length taken for a torn one. The batches after it would be lost
// unnoticed.
TEST(LogCheckTest, EveryFlippedBitIsDamage) {
  std::string log = SampleLog();
  for (const bool may_be_torn : {true, false}) {
    for (size_t byte = 0; byte < log.size(); ++byte) {
      // Flips all bits near the end of the log, and one bit of each earlier byte.
      const bool is_near_end = byte + 3200 > log.size();
      if (!is_near_end && !may_be_torn) continue;
      for (int bit = is_near_end ? 0 : static_cast<int>(byte % 8); bit < 8; ++bit) {
        log[byte] = static_cast<char>(log[byte] ^ (1 << bit));
        const auto damage = CheckLogBytes(log, may_be_torn);
        log[byte] = static_cast<char>(log[byte] ^ (1 << bit));
        ASSERT_TRUE(damage.has_value()) << "byte " << byte << " bit " << bit;
        ASSERT_LE(damage->offset, byte);
        if (!is_near_end) break;
      }
    }
  }
}

// Damage before a torn end is found wherever the log ends.
TEST(LogCheckTest, AFlipInAWholeRecordBeforeATornOneIsDamage) {
  std::string log = SampleLog();
  const size_t flipped = log.size() - 600;  // in a record that ends before the truncated lengths
  log[flipped] = static_cast<char>(log[flipped] ^ 4);
  const std::optional<LogDamage> damage = CheckLogBytes(log, true);
  ASSERT_TRUE(damage.has_value());
  const size_t end_of_record = damage->offset + 3100;
  for (size_t bytes = std::min(end_of_record, log.size() - 200); bytes <= log.size(); ++bytes) {
    EXPECT_TRUE(CheckLogBytes(std::string_view(log).substr(0, bytes), true).has_value())
        << "cut at " << bytes;
  }
}

// The record ends with its block, or 1 to 9 bytes before. A header of 7 bytes fits or not.
TEST(LogCheckTest, RecordsThatEndNearTheEndOfABlock) {
  for (size_t left = 0; left <= 9; ++left) {
    // 7 bytes of the record's header, 12 bytes of the batch's header, 1 + 1 + 3 + 3 of the value's.
    const size_t first = kBlockBytes - left - 7 - 12 - 8;
    const std::string log = MakeLog({first, 50});
    ASSERT_GT(log.size(), kBlockBytes) << left;
    EXPECT_FALSE(CheckLogBytes(log, false).has_value()) << left;
    for (size_t byte = kBlockBytes - 16; byte < log.size(); ++byte) {
      EXPECT_FALSE(CheckLogBytes(std::string_view(log).substr(0, byte), true).has_value())
          << left << " left, cut at " << byte;
      for (int bit = 0; bit < 8; ++bit) {
        std::string flipped = log;
        flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
        EXPECT_TRUE(CheckLogBytes(flipped, true).has_value())
            << left << " left, byte " << byte << " bit " << bit;
      }
    }
  }
}

// A power cut may leave preallocated zeros at the end. A hole with records after it is damage.
TEST(LogCheckTest, ZerosAreTheEndOfALogOnly) {
  const std::string& log = SampleLog();
  for (const size_t zeros : {size_t{1}, size_t{6}, size_t{7}, size_t{5000}, 2 * kBlockBytes}) {
    EXPECT_FALSE(CheckLogBytes(log + std::string(zeros, '\0'), true).has_value()) << zeros;
    EXPECT_TRUE(CheckLogBytes(log + std::string(zeros, '\0'), false).has_value()) << zeros;
  }
  const std::string two_blocks = MakeLog(std::vector<size_t>(90, 1200));
  ASSERT_GT(two_blocks.size(), 3 * kBlockBytes);
  std::string hole = two_blocks;
  std::fill_n(hole.begin() + kBlockBytes, kBlockBytes, '\0');
  const auto damage = CheckLogBytes(hole, true);
  ASSERT_TRUE(damage.has_value());
  EXPECT_LE(damage->offset, kBlockBytes);
  // Blocks that were swapped keep their CRCs.
  std::string swapped = two_blocks;
  std::swap_ranges(swapped.begin(), swapped.begin() + kBlockBytes, swapped.begin() + kBlockBytes);
  EXPECT_TRUE(CheckLogBytes(swapped, true).has_value());
}

}  // namespace
}  // namespace hps
