#include <gtest/gtest.h>
#include <rocksdb/sst_file_reader.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/salvage/verify.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 4;
constexpr size_t kRowBytes = 64;
constexpr size_t kFileCount = 3;
constexpr size_t kFileKeys = 1000;

// A table whose rows are in three table files, with damage in all of them but the first. RocksDB's
// own iterator takes the end of the file before the damage for the end of the table.
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
  // Returns the files of rows, or those of key lists (which are much smaller), in key order.
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
  // Expects every key to be lost, or a hit with its row. Returns the number of lost keys.
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

// The damaged list cannot name the keys of lost blocks, so the whole range answers kLost.
TEST_F(DamagedFileTest, AKeyListDoesNotEndBeforeAFirstBlockThatIsDamaged) {
  Import();
  // One gap that spans the end of a file and the begin of the next one.
  for (size_t byte = 60'000; byte <= 94'000; byte += 1000) Damage(Files(true)[0], byte);
  Damage(Files(true)[1], 100);
  const size_t lost = CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t"));
  Damage(Files(false)[1], 20);
  ASSERT_TRUE(VerifyRocksStore(Options(OpenMode::kReadWrite), true, {}).ok());
  EXPECT_GE(CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t")), lost);
}

// Catches: imports and repairs that never succeed because RocksDB reads the damaged neighbour of
// their key list.
TEST_F(DamagedFileTest, ADamagedKeyListPreventsNoImportAndNoRepair) {
  Import();
  Damage(Files(false)[0], 20);  // the first block, which no lookup reads
  const auto import_other = [this] {
    const auto store = Open(OpenMode::kReadWrite);
    const TableSpec spec = {.name = "m/other", .dim = kRowBytes / 4};
    auto import = store->BeginImport({&spec, 1});
    ASSERT_TRUE(import.ok()) << import.status();
    StampedRows rows(kStamp, kRowBytes, Keys(0, 5000));
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    const auto committed = (*import)->Commit();
    ASSERT_TRUE(committed.ok()) << committed.status();
  };
  // The incarnation is random and decides which list is adjacent to the new one.
  for (int i = 0; i < 6; ++i) import_other();
  for (int i = 0; i < 4; ++i) {
    const auto repaired = VerifyRocksStore(Options(OpenMode::kReadWrite), true, {});
    ASSERT_TRUE(repaired.ok()) << repaired.status();
    EXPECT_EQ(repaired->rows_marked_lost, 0u);
    EXPECT_EQ(VerifyRocksStore(Options(OpenMode::kReadWrite), false, {})->damage_count, 0u);
    EXPECT_EQ(CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t")), 0u);
    import_other();
  }
}

TEST_F(DamagedFileTest, AMissingKeyListPreventsNoRepair) {
  Import();
  std::filesystem::remove(Files(false)[0]);
  const auto repaired = VerifyRocksStore(Options(OpenMode::kReadWrite), true, {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  EXPECT_EQ(CountLost(**Open(OpenMode::kReadOnly)->OpenTable("m/t")), 0u);
}

// In the table below even keys are imported. Then some keys are rewritten or deleted, and some odd
// keys are added.
constexpr Key kLastKey = 6000;
constexpr Version kUpdated = 7;

bool IsDeleted(Key key) { return key % 70 == 0; }
bool IsUpdated(Key key) { return !IsDeleted(key) && (key % 20 == 0 || key % 50 == 25); }
bool Exists(Key key) { return !IsDeleted(key) && (key % 2 == 0 || key % 50 == 25); }

// A table with imported rows on level 6 and newer rows on level 5, in several files each.
class DamagedLevelTest : public DamagedFileTest {
 protected:
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
      auto import = store->BeginImport({&spec, 1});
      ASSERT_TRUE(import.ok()) << import.status();
      const std::vector<Key> even = KeysThat([](Key key) { return key % 2 == 0; });
      for (size_t part = 0; part < kFileCount; ++part) {
        const auto begin = even.begin() + static_cast<ptrdiff_t>(part * kFileKeys);
        StampedRows rows(kStamp, kRowBytes, {begin, begin + kFileKeys});
        ASSERT_TRUE((*import)->Add(0, part, rows.keys(), rows.rows()).ok());
      }
      ASSERT_TRUE((*import)->Commit().ok());
      Write(*store, KeysThat(IsUpdated), KeysThat(IsDeleted));
    }
    MoveToLevelFive();
  }

  static void Write(DurableStore& store, std::vector<Key> updated,
                    const std::vector<Key>& deleted) {
    const auto table = store.OpenTable("m/t");
    ASSERT_TRUE(table.ok()) << table.status();
    StampedRows rows(kStamp, kRowBytes, std::move(updated), kUpdated);
    const absl::Status written = (*table)->Write({.upserts = rows.batch(), .deletes = deleted});
    ASSERT_TRUE(written.ok()) << written;
  }

  // Moves the rows that opening has flushed to level 0 to several files on level 5.
  void MoveToLevelFive() const {
    const auto database = Database::Open(Options(OpenMode::kReadWrite));
    ASSERT_TRUE(database.ok()) << database.status();
    const auto pin = (*database)->PinTable("m/t");
    rocksdb::CompactionOptions options;
    options.output_file_size_limit = 10'000;
    std::vector<std::string> files;
    for (const auto& file : FilesOf(**database, *pin, 0)) files.push_back(file.name);
    ASSERT_EQ(files.size(), 1u);
    const rocksdb::Status moved =
        (*database)->db().CompactFiles(options, pin->family().handle, files, 5);
    ASSERT_TRUE(moved.ok()) << moved.ToString();
    ASSERT_GT(FilesOf(**database, *pin, 5).size(), 2u);
    ASSERT_EQ(FilesOf(**database, *pin, 6).size(), kFileCount);
  }

  static std::vector<rocksdb::SstFileMetaData> FilesOf(Database& database, const Database::Pin& pin,
                                                       size_t level) {
    rocksdb::ColumnFamilyMetaData family;
    database.db().GetColumnFamilyMetaData(pin.family().handle, &family);
    return family.levels[level].files;
  }

  // Moves the rows that opening has flushed to level 0 to one file on level 5. Returns its path.
  std::string MoveToOneFileOnLevelFive() const {
    const auto database = Database::Open(Options(OpenMode::kReadWrite));
    EXPECT_TRUE(database.ok()) << database.status();
    const auto pin = (*database)->PinTable("m/t");
    const auto files = FilesOf(**database, *pin, 0);
    EXPECT_EQ(files.size(), 1u);
    const rocksdb::Status moved =
        (*database)->db().CompactFiles({}, pin->family().handle, {files[0].name}, 5);
    EXPECT_TRUE(moved.ok()) << moved.ToString();
    return directory_.path() + "/store/" + FilesOf(**database, *pin, 5).back().relative_filename;
  }

  // Looks up the keys that were written after the import.
  std::vector<FetchOutcome> AskNewKeys() const {
    const auto store = Open(OpenMode::kReadOnly);
    const FetchedRows fetched(**store->OpenTable("m/t"), Keys(10'000, 20'000));
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    return fetched.outcomes;
  }

  enum class Part { kFirstBlock, kLaterBlock, kFilter, kIndex, kMagic };

  // Damages a file on a level.
  void DamageFile(size_t level, size_t number, Part part) const {
    std::string path;
    {
      const auto database = Database::Open(Options(OpenMode::kReadOnly));
      ASSERT_TRUE(database.ok()) << database.status();
      const auto pin = (*database)->PinTable("m/t");
      path = directory_.path() + "/store/" +
             FilesOf(**database, *pin, level)[number].relative_filename;
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
        return Damage(path, 100);
      case Part::kLaterBlock:
        return Damage(path, 5000);
      case Part::kFilter:
        return Damage(path, filter + properties->filter_size / 2);
      case Part::kIndex:
        return Damage(path, index + properties->index_size / 2);
      case Part::kMagic:
        return Damage(path, std::filesystem::file_size(path) - 1);
    }
  }

  // Looks up all keys. Every answer must be right or kLost.
  struct Answers {
    std::vector<FetchOutcome> outcomes;
    size_t lost = 0;
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
        continue;
      }
      EXPECT_EQ(fetched.outcomes[i] == FetchOutcome::kHit, Exists(key)) << "key " << key;
      if (fetched.outcomes[i] != FetchOutcome::kHit) continue;
      // The older row of an updated key is wrong.
      EXPECT_EQ(fetched.versions[i], IsUpdated(key) ? kUpdated : 0) << "key " << key;
      EXPECT_TRUE(StampedRow::Matches(kStamp, key, fetched.versions[i], fetched.row(i)));
    }
    return answers;
  }

  void Keep() const {
    std::filesystem::copy(directory_.path() + "/store", directory_.path() + "/kept");
  }
  void TakeKept() const {
    std::filesystem::remove_all(directory_.path() + "/store");
    std::filesystem::copy(directory_.path() + "/kept", directory_.path() + "/store");
  }

  // The file of rows, if there is only one.
  std::string OnlyFile() const {
    const auto database = Database::Open(Options(OpenMode::kReadOnly));
    EXPECT_TRUE(database.ok()) << database.status();
    const auto pin = (*database)->PinTable("m/t");
    const auto files = FilesOf(**database, *pin, 6);
    EXPECT_EQ(files.size(), 1u);
    return directory_.path() + "/store/" + files[0].relative_filename;
  }

  // Repairs the store and prints the number of keys that have become lost.
  void RepairAndCompare(const Answers& before) const {
    const auto verified = VerifyRocksStore(Options(OpenMode::kReadWrite), false, {});
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_GT(verified->damage_count, 0u);
    const auto repaired = VerifyRocksStore(Options(OpenMode::kReadWrite), true, {});
    ASSERT_TRUE(repaired.ok()) << repaired.status();
    EXPECT_EQ(repaired->rows, verified->rows);
    const Answers after = Ask();
    size_t rows = 0;
    size_t absent_no_more = 0;
    for (size_t i = 0; i < before.outcomes.size(); ++i) {
      rows += after.outcomes[i] == FetchOutcome::kHit ? 1 : 0;
      if (after.outcomes[i] == before.outcomes[i]) continue;
      // A write to an absent key may have been in the damage, so such a key may become lost.
      EXPECT_EQ(before.outcomes[i], FetchOutcome::kAbsent) << "key " << i;
      EXPECT_EQ(after.outcomes[i], FetchOutcome::kLost) << "key " << i;
      ++absent_no_more;
    }
    EXPECT_EQ(rows, repaired->rows);
    const auto again = VerifyRocksStore(Options(OpenMode::kReadWrite), false, {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->damage_count, 0u);
    std::printf("%zu keys: %zu rows kept, %zu lost before, %zu absent ones doubtful since\n",
                before.outcomes.size(), rows, before.lost, absent_no_more);
  }
};

TEST_F(DamagedLevelTest, ARepairKeepsWhatALookupAnswers) {
  MakeStore();
  ASSERT_EQ(Ask().lost, 0u);
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
        Case{"an older index", 6, Part::kIndex, 1000}}) {
    SCOPED_TRACE(damage.what);
    std::printf("%s: ", damage.what);
    DamageFile(damage.level, 1, damage.part);
    const Answers before = Ask();
    EXPECT_EQ(before.lost > 0, damage.part != Part::kFilter);
    EXPECT_LT(before.lost, damage.lost_max);
    RepairAndCompare(before);
    TakeKept();
  }
}

// Catches: a repair that skips good blocks between damaged ones. Rows written after the import are
// in no key list, so they would be lost.
TEST_F(DamagedLevelTest, ARepairKeepsTheGoodBlocksBetweenDamagedOnes) {
  MakeStore();
  Write(*Open(OpenMode::kReadWrite), Keys(10'000, 20'000), {});
  const std::string file = MoveToOneFileOnLevelFive();
  for (size_t block = 0; block < 100; ++block) {
    if (block % 8 == 0 || block % 8 == 1 || block % 8 == 3) Damage(file, block * 4096 + 2000);
  }
  const std::vector<FetchOutcome> before = AskNewKeys();
  const auto hits = std::count(before.begin(), before.end(), FetchOutcome::kHit);
  EXPECT_GT(hits, 5000);
  EXPECT_LT(hits, 9000);
  ASSERT_TRUE(VerifyRocksStore(Options(OpenMode::kReadWrite), true, {}).ok());
  const std::vector<FetchOutcome> after = AskNewKeys();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(after[i] == FetchOutcome::kHit, before[i] == FetchOutcome::kHit) << "row " << i;
}

// The keys of the file are unknown, and so is whether an older row below it is current.
TEST_F(DamagedLevelTest, ARepairLosesTheKeysOfAFileThatCantBeOpened) {
  MakeStore();
  DamageFile(5, 1, Part::kMagic);
  EXPECT_TRUE(absl::IsDataLoss(OpenRocksStore(Options(OpenMode::kReadOnly)).status()));
  const auto repaired = VerifyRocksStore(Options(OpenMode::kReadWrite), true, {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  const Answers answers = Ask();
  EXPECT_GT(repaired->rows_marked_lost, 0u);
  EXPECT_GE(answers.lost, repaired->rows_marked_lost);
  EXPECT_GT(repaired->rows, 1500u);
  std::printf("%llu rows kept, %zu keys lost\n", static_cast<unsigned long long>(repaired->rows),
              answers.lost);
}

// Catches: a lost range of an earlier repair that is replaced by a shorter one with the same first
// key.
TEST_F(DamagedLevelTest, ASecondRepairKeepsTheLostRangesOfTheFirst) {
  MakeStore();
  DamageFile(5, 0, Part::kIndex);
  ASSERT_TRUE(VerifyRocksStore(Options(OpenMode::kReadWrite), true, {}).ok());
  const Answers first = Ask();
  ASSERT_GT(first.lost, 0u);
  // Rows have been written since the first repair, and may have been in the damage.
  Write(*Open(OpenMode::kReadWrite), {5980}, {});
  Damage(OnlyFile(), 100);
  const Answers second = Ask();
  EXPECT_GE(second.lost, first.lost);
  ASSERT_TRUE(VerifyRocksStore(Options(OpenMode::kReadWrite), true, {}).ok());
  const Answers third = Ask();
  for (size_t i = 0; i < first.outcomes.size(); ++i) {
    if (first.outcomes[i] != FetchOutcome::kLost) continue;
    EXPECT_EQ(third.outcomes[i], FetchOutcome::kLost) << "key " << i;
  }
}

// RocksDB's compactions use another iterator than scans, one that loses no error. They fail, and
// the store accepts no write until it is reopened. Catches: a compaction that omits unreadable
// rows, so that their loss would go unnoticed.
TEST_F(DamagedLevelTest, ACompactionLosesNothing) {
  MakeStore();
  Keep();
  for (const auto& [level, part] : std::vector<std::pair<size_t, Part>>{{5, Part::kFirstBlock},
                                                                        {6, Part::kFirstBlock},
                                                                        {5, Part::kIndex},
                                                                        {6, Part::kIndex},
                                                                        {6, Part::kLaterBlock}}) {
    SCOPED_TRACE(absl::StrCat("level ", level, ", part ", static_cast<int>(part)));
    DamageFile(level, 1, part);
    const Answers before = Ask();
    EXPECT_GT(before.lost, 0u);
    {
      const auto database = Database::Open(Options(OpenMode::kReadWrite));
      ASSERT_TRUE(database.ok()) << database.status();
      const auto pin = (*database)->PinTable("m/t");
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      const rocksdb::Status compacted =
          (*database)->db().CompactRange(options, pin->family().handle, nullptr, nullptr);
      EXPECT_TRUE(compacted.IsCorruption()) << compacted.ToString();
      EXPECT_FALSE((*database)->Statistics().writable);
      EXPECT_GT((*database)->Statistics().background_errors, 0u);
      rocksdb::WriteBatch batch;
      batch.Put("any", "record");
      EXPECT_EQ((*database)->Write(batch, false).code(), absl::StatusCode::kUnavailable);
    }
    EXPECT_EQ(Ask().outcomes, before.outcomes);
    RepairAndCompare(before);
    TakeKept();
  }
}

}  // namespace
}  // namespace hps
