// Damage in the table files that hold the changes of a table.
#include <gtest/gtest.h>
#include <rocksdb/sst_file_reader.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 4;
constexpr size_t kRowBytes = 64;
constexpr Key kLastKey = 6000;
constexpr Version kWritten = 3;
constexpr Version kUpdated = 7;
constexpr uint64_t kOldFileBytes = 100'000;
constexpr uint64_t kNewFileBytes = 10'000;

// All even keys are imported and then written. Afterwards some of them are written again or
// deleted, and some odd keys are added.
bool IsEven(Key key) { return key % 2 == 0; }
bool IsDeleted(Key key) { return key % 70 == 0; }
bool IsUpdated(Key key) { return !IsDeleted(key) && (key % 20 == 0 || key % 50 == 25); }
bool Exists(Key key) { return !IsDeleted(key) && (key % 2 == 0 || key % 50 == 25); }

// A table with imported rows, which are all replaced, with older changes on level 6 and newer ones
// on level 5, in several files each.
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
  static std::vector<Key> KeysThat(bool (*are)(Key)) {
    std::vector<Key> keys;
    for (Key key = 0; key < kLastKey; ++key) {
      if (are(key)) keys.push_back(key);
    }
    return keys;
  }

  void MakeStore() const {
    {
      const auto store = Open(OpenMode::kCreate);
      const TableSpec spec = {.name = "m/t", .dim = kRowBytes / 4};
      const auto import = store->BeginImport({&spec, 1});
      ASSERT_TRUE(import.ok()) << import.status();
      StampedRows rows(kStamp, kRowBytes, KeysThat(IsEven));
      ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
      ASSERT_TRUE((*import)->Commit().ok());
      Write(*store, KeysThat(IsEven), {}, kWritten);
    }
    MoveToLevel(6, kOldFileBytes);
    Write(*Open(OpenMode::kReadWrite), KeysThat(IsUpdated), KeysThat(IsDeleted), kUpdated);
    MoveToLevel(5, kNewFileBytes);
    const auto database = Database::Open(Options(OpenMode::kReadOnly));
    const auto pin = (*database)->catalog().PinTable("m/t");
    ASSERT_GT(FilesOf(**database, *pin, 5).size(), 2u);
    ASSERT_GT(FilesOf(**database, *pin, 6).size(), 2u);
    ASSERT_EQ(Ask().lost, 0u);
  }
  static void Write(DurableStore& store, std::vector<Key> keys, const std::vector<Key>& deleted,
                    Version version) {
    const auto table = store.OpenTable("m/t");
    ASSERT_TRUE(table.ok()) << table.status();
    StampedRows rows(kStamp, kRowBytes, std::move(keys), version);
    const absl::Status written = (*table)->Write({.upserts = rows.batch(), .deletes = deleted});
    ASSERT_TRUE(written.ok()) << written;
  }
  // Moves the changes that opening has flushed to level 0.
  void MoveToLevel(int level, uint64_t file_bytes) const {
    const auto database = Database::Open(Options(OpenMode::kReadWrite));
    ASSERT_TRUE(database.ok()) << database.status();
    const auto pin = (*database)->catalog().PinTable("m/t");
    rocksdb::CompactionOptions options;
    options.output_file_size_limit = file_bytes;
    std::vector<std::string> files;
    for (const auto& file : FilesOf(**database, *pin, 0)) files.push_back(file.name);
    ASSERT_EQ(files.size(), 1u);
    const rocksdb::Status moved =
        (*database)->db().CompactFiles(options, pin->family().handle, files, level);
    ASSERT_TRUE(moved.ok()) << moved.ToString();
  }
  static std::vector<rocksdb::SstFileMetaData> FilesOf(Database& database, const FamilyPin& pin,
                                                       size_t level) {
    rocksdb::ColumnFamilyMetaData family;
    database.db().GetColumnFamilyMetaData(pin.family().handle, &family);
    return family.levels[level].files;
  }

  enum class Part { kFirstBlock, kLaterBlock, kFilter, kIndex, kMagic };

  // Damages the second file on a level.
  void DamageFile(size_t level, Part part) const {
    std::string path;
    {
      const auto database = Database::Open(Options(OpenMode::kReadOnly));
      ASSERT_TRUE(database.ok()) << database.status();
      const auto pin = (*database)->catalog().PinTable("m/t");
      path = directory_.path() + "/store/" + FilesOf(**database, *pin, level)[1].relative_filename;
    }
    rocksdb::Options options;
    options.env = rocksdb::Env::Default();
    rocksdb::SstFileReader reader(options);
    ASSERT_TRUE(reader.Open(path).ok());
    const auto properties = reader.GetTableProperties();
    constexpr size_t kBlockTailBytes = 5;
    const size_t filter = properties->data_size;
    const size_t index = filter + properties->filter_size + kBlockTailBytes;
    switch (part) {
      case Part::kFirstBlock:
        return FlipBit(path, 100);
      case Part::kLaterBlock:
        return FlipBit(path, 5000);
      case Part::kFilter:
        return FlipBit(path, filter + properties->filter_size / 2);
      case Part::kIndex:
        return FlipBit(path, index + properties->index_size / 2);
      case Part::kMagic:
        return FlipBit(path, std::filesystem::file_size(path) - 1);
    }
  }

  // Looks up all keys. Every answer must be right or kLost.
  struct Answers {
    std::vector<FetchOutcome> outcomes;
    size_t lost = 0;
    size_t rows_lost = 0;  // of keys that exist
  };
  Answers Ask() const {
    const auto store = Open(OpenMode::kReadOnly);
    const auto table = store->OpenTable("m/t");
    EXPECT_TRUE(table.ok()) << table.status();
    const FetchedRows fetched(**table, KeysThat([](Key) { return true; }));
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    Answers answers = {.outcomes = fetched.outcomes};
    for (size_t i = 0; i < fetched.keys.size(); ++i) {
      const Key key = fetched.keys[i];
      if (fetched.outcomes[i] == FetchOutcome::kLost) {
        ++answers.lost;
        answers.rows_lost += Exists(key) ? 1 : 0;
        continue;
      }
      EXPECT_EQ(fetched.outcomes[i] == FetchOutcome::kHit, Exists(key)) << "key " << key;
      if (fetched.outcomes[i] != FetchOutcome::kHit) continue;
      // An older row is wrong, also the imported one.
      EXPECT_EQ(fetched.versions[i], IsUpdated(key) ? kUpdated : kWritten) << "key " << key;
      EXPECT_TRUE(StampedRow::Matches(kStamp, key, fetched.versions[i], fetched.row(i)));
    }
    return answers;
  }
  absl::Status ScanAll() const {
    const auto store = Open(OpenMode::kReadOnly);
    HPS_ASSIGN_OR_RETURN(const auto table, store->OpenTable("m/t"));
    HPS_ASSIGN_OR_RETURN(const auto cursor, table->Scan());
    std::vector<Key> keys(100);
    StampedRows rows(kStamp, kRowBytes, keys);
    for (;;) {
      HPS_ASSIGN_OR_RETURN(const size_t count, cursor->Next(keys, rows.rows(), {}));
      if (count == 0) return absl::OkStatus();
    }
  }

  void Keep() const {
    std::filesystem::copy(directory_.path() + "/store", directory_.path() + "/kept",
                          std::filesystem::copy_options::recursive);
  }
  void TakeKept() const {
    std::filesystem::remove_all(directory_.path() + "/store");
    std::filesystem::copy(directory_.path() + "/kept", directory_.path() + "/store",
                          std::filesystem::copy_options::recursive);
  }

  const TestDirectory directory_;
};

// What a lookup loses of each part of a file, what verify says of it, and that a repair leaves it.
TEST_F(DamagedFileTest, DamageIsLostAndNothingElse) {
  MakeStore();
  Keep();
  struct Case {
    const char* what;
    size_t level;
    Part part;
    size_t lost_max;
  };
  for (const Case& damage :
       {Case{"a newer block", 5, Part::kFirstBlock, 80},
        Case{"an older block", 6, Part::kLaterBlock, 50},
        Case{"the first older block", 6, Part::kFirstBlock, 50},
        Case{"a newer filter", 5, Part::kFilter, 1}, Case{"a newer index", 5, Part::kIndex, 200},
        Case{"an older index", 6, Part::kIndex, 1200}}) {
    SCOPED_TRACE(damage.what);
    DamageFile(damage.level, damage.part);
    const Answers before = Ask();
    EXPECT_EQ(before.lost > 0, damage.part != Part::kFilter);
    EXPECT_LT(before.lost, damage.lost_max);
    // RocksDB's own iterator takes the end of the file before the damage for the end of the table.
    EXPECT_EQ(absl::IsDataLoss(ScanAll()), damage.part != Part::kFilter);
    for (const bool repair : {false, true}) {
      const auto report = VerifyRocksStore(Options(OpenMode::kReadWrite), repair, {});
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_GT(report->damage_count, 0u);
      EXPECT_GE(report->rows_lost, before.rows_lost);
      EXPECT_EQ(Ask().outcomes, before.outcomes);
    }
    TakeKept();
  }
}

// The store answers nothing without the file, and a repair does not make the store open without it.
TEST_F(DamagedFileTest, AFileThatCannotBeOpenedKeepsTheStoreClosed) {
  MakeStore();
  DamageFile(5, Part::kMagic);
  for (const bool repair : {false, true}) {
    EXPECT_TRUE(absl::IsDataLoss(OpenRocksStore(Options(OpenMode::kReadOnly)).status()));
    EXPECT_TRUE(absl::IsDataLoss(OpenRocksStore(Options(OpenMode::kReadWrite)).status()));
    const auto report = VerifyRocksStore(Options(OpenMode::kReadWrite), repair, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->damage_count, 0u);
  }
  EXPECT_TRUE(absl::IsDataLoss(OpenRocksStore(Options(OpenMode::kReadWrite)).status()));
}

// RocksDB's compactions use another iterator than scans, one that loses no error. They fail, and
// the store accepts no write until it is reopened. Catches: a compaction that omits unreadable
// rows, so that their loss would go unnoticed.
TEST_F(DamagedFileTest, ACompactionLosesNothing) {
  MakeStore();
  Keep();
  for (const auto& [level, part] : std::vector<std::pair<size_t, Part>>{{5, Part::kFirstBlock},
                                                                        {6, Part::kFirstBlock},
                                                                        {5, Part::kIndex},
                                                                        {6, Part::kIndex},
                                                                        {6, Part::kLaterBlock}}) {
    SCOPED_TRACE(absl::StrCat("level ", level, ", part ", static_cast<int>(part)));
    DamageFile(level, part);
    const Answers before = Ask();
    EXPECT_GT(before.lost, 0u);
    {
      const auto database = Database::Open(Options(OpenMode::kReadWrite));
      ASSERT_TRUE(database.ok()) << database.status();
      const auto pin = (*database)->catalog().PinTable("m/t");
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      const rocksdb::Status compacted =
          (*database)->db().CompactRange(options, pin->family().handle, nullptr, nullptr);
      EXPECT_TRUE(compacted.IsCorruption()) << compacted.ToString();
      EXPECT_FALSE((*database)->Statistics().writable);
      EXPECT_GT((*database)->Statistics().background_errors, 0u);
      rocksdb::WriteBatch batch;
      batch.Put("any", "record");
      EXPECT_EQ((*database)->writer().Write(batch, false).code(), absl::StatusCode::kUnavailable);
    }
    EXPECT_EQ(Ask().outcomes, before.outcomes);
    TakeKept();
  }
}

}  // namespace
}  // namespace hps
