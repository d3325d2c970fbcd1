#include "l3_rocksdb/store_iterator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 4;
constexpr size_t kRowBytes = 64;
constexpr size_t kFileCount = 3;
constexpr size_t kFileKeys = 1000;

// A table whose rows lie in three table files, with something damaged in all of them but the first:
// RocksDB's own iterator takes the end of the file before it for the end of the table then.
class DamagedFileTest : public testing::Test {
 protected:
  RocksStoreOptions Options(OpenMode mode) const {
    RocksStoreOptions options = TestOptions(directory_.path() + "/store");
    options.mode = mode;
    return options;
  }
  std::unique_ptr<DurableStore> Open(OpenMode mode) const {
    auto store = OpenRocksStore(Options(mode));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static std::vector<Key> Keys(size_t first, size_t end) {
    std::vector<Key> keys;
    for (size_t key = first; key < end; ++key) keys.push_back(static_cast<Key>(key));
    return keys;
  }
  void Import() const {
    const auto store = Open(OpenMode::kCreate);
    const TableSpec spec = {.name = "m/t", .dim = kRowBytes / 4};
    auto import = store->BeginImport({&spec, 1});
    ASSERT_TRUE(import.ok()) << import.status();
    for (size_t part = 0; part < kFileCount; ++part) {
      StampedRows rows(kStamp, kRowBytes, Keys(part * kFileKeys, (part + 1) * kFileKeys));
      ASSERT_TRUE((*import)->Add(0, part, rows.keys(), rows.rows()).ok());
    }
    ASSERT_TRUE((*import)->Commit().ok());
  }
  // The files of rows, or those of the key lists, which are much smaller, in the order of keys.
  std::vector<std::string> Files(bool rows) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path() + "/store")) {
      if (entry.path().extension() != ".sst") continue;
      const bool is_large = entry.file_size() > kFileKeys * kRowBytes;
      const bool is_list = entry.file_size() > 1600 && !is_large;
      if (rows ? is_large : is_list) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    EXPECT_EQ(files.size(), kFileCount);
    return files;
  }
  static void Damage(const std::string& file, size_t byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(byte));
    const int value = stream.get() ^ 4;
    stream.seekp(static_cast<std::streamoff>(byte));
    stream.put(static_cast<char>(value));
    ASSERT_TRUE(stream.good()) << file;
  }
  static absl::Status ScanAll(DurableTable& table) {
    auto cursor = table.Scan();
    HPS_RETURN_IF_ERROR(cursor.status());
    std::vector<Key> keys(100);
    StampedRows rows(kStamp, kRowBytes, keys);
    for (;;) {
      HPS_ASSIGN_OR_RETURN(const size_t count, (*cursor)->Next(keys, rows.rows(), {}));
      if (count == 0) return absl::OkStatus();
    }
  }
  // Every key is a hit with its row or lost. Returns how many are lost.
  static size_t CountLost(DurableTable& table) {
    const FetchedRows fetched(table, Keys(0, kFileCount * kFileKeys));
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    size_t lost = 0;
    for (size_t i = 0; i < fetched.keys.size(); ++i) {
      EXPECT_NE(fetched.outcomes[i], FetchOutcome::kAbsent) << "key " << fetched.keys[i];
      lost += fetched.outcomes[i] == FetchOutcome::kLost;
      EXPECT_TRUE(
          fetched.outcomes[i] == FetchOutcome::kLost ||
          StampedRow::Matches(kStamp, fetched.keys[i], fetched.versions[i], fetched.row(i)));
    }
    return lost;
  }

  const TestDirectory directory_;
};

TEST_F(DamagedFileTest, AScanDoesNotEndBeforeAFirstBlockThatIsDamaged) {
  Import();
  {
    const auto store = Open(OpenMode::kReadOnly);
    EXPECT_TRUE(ScanAll(**store->OpenTable("m/t")).ok());
  }
  Damage(Files(true)[1], 100);
  const auto store = Open(OpenMode::kReadOnly);
  EXPECT_EQ(ScanAll(**store->OpenTable("m/t")).code(), absl::StatusCode::kDataLoss);
}

TEST_F(DamagedFileTest, ARepairLosesWhatIsDamagedAndNothingElse) {
  Import();
  for (size_t file = 1; file < kFileCount; ++file) Damage(Files(true)[file], 100);
  const size_t lost = CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t"));
  ASSERT_GT(lost, 0u);
  ASSERT_LT(lost, 300u) << "more than two blocks";
  const auto verified = VerifyRocksStore(Options(OpenMode::kReadWrite), false, {});
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(verified->rows, kFileCount * kFileKeys - lost);
  const auto repaired = VerifyRocksStore(Options(OpenMode::kReadWrite), true, {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  EXPECT_EQ(repaired->rows_marked_lost, lost);
  EXPECT_EQ(CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t")), lost);
  EXPECT_EQ(VerifyRocksStore(Options(OpenMode::kReadWrite), false, {})->damage_count, 0u);
}

// The keys of lost blocks can't be named then: their whole range answers "lost".
TEST_F(DamagedFileTest, AKeyListDoesNotEndBeforeAFirstBlockThatIsDamaged) {
  Import();
  // One gap, over the end of a file and the begin of the next one.
  for (size_t byte = 60'000; byte <= 94'000; byte += 1000) Damage(Files(true)[0], byte);
  Damage(Files(true)[1], 100);
  const size_t lost = CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t"));
  Damage(Files(false)[1], 20);
  ASSERT_TRUE(VerifyRocksStore(Options(OpenMode::kReadWrite), true, {}).ok());
  EXPECT_GE(CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t")), lost);
}

// Like a map, in a family that is written to, flushed and compacted while iterators go on.
TEST(StoreIteratorTest, AgreesWithAMap) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const TestDirectory directory;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.target_file_size_base = 4 << 10;
  options.max_bytes_for_level_base = 16 << 10;
  options.level0_file_num_compaction_trigger = 2;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, directory.path() + "/db", &opened).ok());
  const std::unique_ptr<rocksdb::DB> database(opened);
  std::map<std::string, std::string> map;
  const auto draw = [&] { return std::to_string(random() % 5000); };
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 300; ++i) {
      const std::string key = draw();
      if (random() % 3 == 0) {
        map.erase(key);
        ASSERT_TRUE(database->Delete({}, key).ok());
      } else {
        map[key] = std::to_string(random());
        ASSERT_TRUE(database->Put({}, key, map[key]).ok());
      }
    }
    const auto it = NewStoreIterator(*database, database->DefaultColumnFamily());
    const std::string start = draw();
    it->SeekForPrev(start);
    auto expected = map.upper_bound(start);
    ASSERT_EQ(it->Valid(), expected != map.begin()) << it->status().ToString();
    if (it->Valid()) {
      ASSERT_EQ(it->key(), std::prev(expected)->first);
      --expected;
    } else {
      it->Seek(start);
    }
    // What is changed from now on is not seen.
    ASSERT_TRUE(database->Put({}, "5x", "later").ok());
    ASSERT_TRUE(database->Flush({}).ok());
    for (; it->Valid(); it->Next(), ++expected) {
      ASSERT_NE(expected, map.end());
      ASSERT_EQ(it->key(), expected->first);
      ASSERT_EQ(it->value(), expected->second);
    }
    ASSERT_TRUE(it->status().ok()) << it->status().ToString();
    ASSERT_EQ(expected, map.end());
    ASSERT_TRUE(database->Delete({}, "5x").ok());
  }
  uint64_t files = 0;
  std::vector<rocksdb::LiveFileMetaData> live;
  database->GetLiveFilesMetaData(&live);
  for (const rocksdb::LiveFileMetaData& file : live) files += file.level > 0 ? 1 : 0;
  EXPECT_GT(files, 4u);
}

}  // namespace
}  // namespace hps
