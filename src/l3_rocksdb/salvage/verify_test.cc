#include "l3_rocksdb/salvage/verify.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 3;
constexpr size_t kRowBytes = 32;

class VerifyTest : public testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/store"; }
  RocksStoreOptions Options(OpenMode mode) const {
    RocksStoreOptions options = TestOptions(path());
    options.mode = mode;
    return options;
  }
  std::unique_ptr<DurableStore> Open(OpenMode mode = OpenMode::kCreate) {
    auto store = OpenRocksStore(Options(mode));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // Keys 0, 3, 6, ...
  static std::vector<Key> Keys(size_t count) {
    std::vector<Key> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(static_cast<Key>(3 * i));
    return keys;
  }
  static constexpr UpdateStart kUpdateStart = {.kind = UpdateStart::Kind::kTime, .time_ms = 77};
  static void Import(DurableStore& store, const std::string& name, size_t count,
                     const std::string& import_id = "") {
    TableSpec spec;
    spec.name = name;
    spec.dim = kRowBytes / 4;
    auto import = store.BeginImport({&spec, 1});
    ASSERT_TRUE(import.ok()) << import.status();
    StampedRows rows(kStamp, kRowBytes, Keys(count));
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    (*import)->SetUpdateStart(kUpdateStart);
    if (!import_id.empty()) {
      ASSERT_TRUE((*import)->SetImportId(import_id).ok());
    }
    ASSERT_TRUE((*import)->Commit().ok());
  }
  VerifyReport Verify(bool repair = false) {
    auto report = VerifyRocksStore(Options(OpenMode::kReadWrite), repair, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : VerifyReport();
  }
  std::vector<std::string> Files(const std::string& prefix, const std::string& suffix) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(suffix)) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  static void FlipBit(const std::string& file, uint64_t byte, int bit) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(byte));
    const int value = stream.get() ^ (1 << bit);
    stream.seekp(static_cast<std::streamoff>(byte));
    stream.put(static_cast<char>(value));
    ASSERT_TRUE(stream.good()) << file;
  }
  // The largest table file: it holds rows.
  std::string RowFile() const {
    std::string largest;
    for (const std::string& file : Files("", ".sst")) {
      if (largest.empty() ||
          std::filesystem::file_size(file) > std::filesystem::file_size(largest)) {
        largest = file;
      }
    }
    return largest;
  }
  // Expects every present key to be lost, or a hit with its row, and every other key to be absent.
  // Returns the lost keys.
  static size_t ExpectNoWrongAnswer(DurableStore& store, const std::string& name, size_t count) {
    auto table = store.OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    const FetchedRows present(**table, Keys(count));
    EXPECT_TRUE(present.counts.ok()) << present.counts.status();
    size_t lost = 0;
    for (size_t i = 0; i < count; ++i) {
      lost += present.outcomes[i] == FetchOutcome::kLost;
      EXPECT_NE(present.outcomes[i], FetchOutcome::kAbsent) << "key " << present.keys[i];
      if (present.outcomes[i] == FetchOutcome::kHit) {
        EXPECT_TRUE(
            StampedRow::Matches(kStamp, present.keys[i], present.versions[i], present.row(i)));
      }
    }
    return lost;
  }

  TestDirectory directory_;
};

TEST_F(VerifyTest, NoStoreIsNotFound) {
  EXPECT_EQ(VerifyRocksStore(Options(OpenMode::kReadWrite), false, {}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(VerifyTest, AStoreThatIsOpenForWritingIsUnavailable) {
  const auto store = Open();
  EXPECT_EQ(VerifyRocksStore(Options(OpenMode::kReadWrite), false, {}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(VerifyTest, AHealthyStoreHasNoDamageAndIsLeftAsItIs) {
  {
    const auto store = Open();
    Import(*store, "m/a", 5000);
    Import(*store, "m/b", 0);
    auto table = store->OpenTable("m/a");
    StampedRows rows(kStamp, kRowBytes, {1, 3}, 8);
    ASSERT_TRUE((*table)->Write({rows.batch(), {}, {}}).ok());
  }
  const auto files = Files("", "");
  const VerifyReport report = Verify();
  EXPECT_EQ(report.damage_count, 0u) << report.damage[0].file << report.damage[0].what;
  EXPECT_EQ(report.tables, 2u);
  EXPECT_EQ(report.rows, 5001u);
  EXPECT_EQ(Files("", ""), files);
}

// Flips every bit of every file that lookups depend on. The flip is found and causes no wrong
// answer.
TEST_F(VerifyTest, EveryFlippedBitIsFoundAndNeverServed) {
  constexpr size_t kRows = 3000;
  {
    const auto store = Open();
    Import(*store, "m/a", kRows);
  }
  std::vector<std::string> files = Files("", ".sst");
  for (const std::string& file : Files("MANIFEST-", "")) files.push_back(file);
  files.push_back(path() + "/CURRENT");
  const uint64_t seed = 20240611;
  std::mt19937_64 random(seed);
  size_t opened_count = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const std::string& file = files[random() % files.size()];
    const uint64_t byte = random() % std::filesystem::file_size(file);
    const int bit = static_cast<int>(random() % 8);
    SCOPED_TRACE(file + " byte " + std::to_string(byte) + " bit " + std::to_string(bit));
    FlipBit(file, byte, bit);
    EXPECT_GT(Verify().damage_count, 0u);
    auto store = OpenRocksStore(Options(OpenMode::kReadOnly));
    if (store.ok()) {
      ++opened_count;
      ExpectNoWrongAnswer(**store, "m/a", kRows);
    } else {
      EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
    }
    FlipBit(file, byte, bit);
  }
  EXPECT_GT(opened_count, 0u);
  EXPECT_EQ(Verify().damage_count, 0u);
}

TEST_F(VerifyTest, RepairMarksTheKeysOfADamagedBlockLost) {
  constexpr size_t kRows = 5000;
  {
    const auto store = Open();
    Import(*store, "m/a", kRows, "version-7");
    Import(*store, "m/b", 10);
    auto table = store->OpenTable("m/a");
    const std::vector<StreamPosition> positions = {{2, 1, 77}};
    ASSERT_TRUE((*table)->Write({{}, {}, positions}).ok());
  }
  FlipBit(RowFile(), 50'000, 3);
  size_t lost = 0;
  {
    const auto store = Open(OpenMode::kReadWrite);
    lost = ExpectNoWrongAnswer(*store, "m/a", kRows);
    EXPECT_GT(lost, 0u);
    EXPECT_LT(lost, 200u);  // at most one block of 4 KiB
  }
  const VerifyReport found = Verify();
  EXPECT_EQ(found.rows, kRows - lost + 10);
  EXPECT_EQ(found.rows_lost, lost);
  EXPECT_EQ(std::count_if(found.damage.begin(), found.damage.end(),
                          [](const Damage& damage) { return damage.key.has_value(); }),
            static_cast<std::ptrdiff_t>(lost));
  const VerifyReport repaired = Verify(true);
  EXPECT_EQ(repaired.rows_marked_lost, lost);
  const VerifyReport after = Verify();
  EXPECT_EQ(after.damage_count, 0u);
  EXPECT_EQ(after.rows, kRows - lost + 10) << "a mark is no row";
  EXPECT_EQ(after.rows_lost, lost);
  const auto store = Open(OpenMode::kReadWrite);
  EXPECT_EQ(ExpectNoWrongAnswer(*store, "m/a", kRows), lost);
  EXPECT_EQ(ExpectNoWrongAnswer(*store, "m/b", 10), 0u);
  auto table = store->OpenTable("m/a");
  const FetchedRows others(**table, {1, -1, 3 * static_cast<Key>(kRows)});
  EXPECT_EQ(others.counts->absent, 3u);
  EXPECT_EQ((*table)->Positions()->at(0), (StreamPosition{2, 1, 77}));
  const TableInfo info = store->Tables()->front();
  EXPECT_EQ(info.update_start.time_ms, kUpdateStart.time_ms);
  EXPECT_EQ(info.import_id, "version-7");
}

TEST_F(VerifyTest, EachLongStepReportsProgress) {
  {
    const auto store = Open();
    Import(*store, "m/a", 4000);
  }
  FlipBit(RowFile(), 50'000, 3);
  std::vector<std::string> steps;
  const auto report =
      VerifyRocksStore(Options(OpenMode::kReadWrite), true, [&](const Progress& progress) {
        EXPECT_LE(progress.done, progress.total);
        EXPECT_GE(progress.total, 4000u);
        if (steps.empty() || steps.back() != progress.step) steps.push_back(progress.step);
      });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(steps, (std::vector<std::string>{"reading files", "reading rows", "copying rows"}));
}

// Keys that an update added are in no key list. So the keys of a damaged block are unknown, and no
// key in its range may be absent.
TEST_F(VerifyTest, RepairOfAChangedTableNeverCallsALostKeyAbsent) {
  constexpr size_t kRows = 4000;
  std::vector<Key> updated;
  for (Key key = 1; key < 12'000; key += 3) updated.push_back(key);
  {
    const auto store = Open();
    Import(*store, "m/a", kRows);
    auto table = store->OpenTable("m/a");
    StampedRows rows(kStamp, kRowBytes, updated, 5);
    ASSERT_TRUE((*table)->Write({rows.batch(), {}, {}}).ok());
  }
  {
    // A small write buffer forces the updates into table files.
    RocksStoreOptions options = Options(OpenMode::kReadWrite);
    options.config.write_buffer_bytes = 64 << 10;
    auto store = OpenRocksStore(options);
    ASSERT_TRUE(store.ok()) << store.status();
    auto table = (*store)->OpenTable("m/a");
    for (size_t begin = 0; begin < updated.size(); begin += 500) {
      StampedRows rows(kStamp, kRowBytes,
                       {updated.begin() + static_cast<std::ptrdiff_t>(begin),
                        updated.begin() + static_cast<std::ptrdiff_t>(begin) + 500},
                       6);
      ASSERT_TRUE((*table)->Write({rows.batch(), {}, {}}).ok());
    }
  }
  for (const std::string& file : Files("", ".sst")) {
    if (std::filesystem::file_size(file) > 30'000) FlipBit(file, 9'000, 1);
  }
  EXPECT_GT(Verify().damage_count, 0u);
  EXPECT_GT(Verify(true).rows_marked_lost, 0u);
  EXPECT_EQ(Verify().damage_count, 0u);
  const auto store = Open(OpenMode::kReadWrite);
  EXPECT_GT(ExpectNoWrongAnswer(*store, "m/a", kRows), 0u);
  auto table = store->OpenTable("m/a");
  const FetchedRows fetched(**table, updated);
  for (size_t i = 0; i < updated.size(); ++i)
    EXPECT_NE(fetched.outcomes[i], FetchOutcome::kAbsent) << "key " << updated[i];

  // A scan reports the loss too.
  const auto cursor = (*table)->Scan();
  ASSERT_TRUE(cursor.ok()) << cursor.status();
  std::vector<Key> keys(256);
  std::vector<std::byte> bytes(keys.size() * kRowBytes);
  absl::StatusOr<size_t> scanned = size_t{1};
  while (scanned.ok() && *scanned > 0)
    scanned = (*cursor)->Next(keys, {bytes.data(), keys.size(), kRowBytes, kRowBytes}, {});
  EXPECT_EQ(scanned.status().code(), absl::StatusCode::kDataLoss) << scanned.status();
}

// Catches: a flipped bit in the mark that makes a healthy store unusable.
TEST_F(VerifyTest, AFlippedBitOfTheMarkIsFoundAndRepairedAndAllowsOpening) {
  constexpr size_t kRows = 100;
  Import(*Open(), "m/a", kRows);
  const std::string mark = path() + "/hps.manifest";
  const uint64_t size = std::filesystem::file_size(mark);
  for (uint64_t byte = 0; byte < size; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      FlipBit(mark, byte, bit);
      const auto read = ReadManifestMark(rocksdb::Env::Default(), path());
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(read->state, ManifestMark::State::kOneCopy) << byte << ", bit " << bit;
      if (bit == static_cast<int>(byte % 8)) {
        const VerifyReport report = Verify();
        ASSERT_EQ(report.damage_count, 1u) << byte;
        EXPECT_EQ(report.damage[0].file, "hps.manifest");
        const auto store = Open(OpenMode::kReadOnly);
        ASSERT_NE(store, nullptr);
        EXPECT_EQ(ExpectNoWrongAnswer(*store, "m/a", kRows), 0u);
      }
      FlipBit(mark, byte, bit);
    }
  }
  FlipBit(mark, 3, 1);
  EXPECT_EQ(Verify(true).damage_count, 1u);
  EXPECT_EQ(Verify().damage_count, 0u);
  FlipBit(mark, 3, 1);
  EXPECT_EQ(ExpectNoWrongAnswer(*Open(OpenMode::kReadWrite), "m/a", kRows), 0u);
  EXPECT_EQ(Verify().damage_count, 0u);  // a writer writes the mark
}

TEST_F(VerifyTest, ADamagedMarkIsRewrittenByRepair) {
  constexpr size_t kRows = 100;
  Import(*Open(), "m/a", kRows);
  const std::string mark = path() + "/hps.manifest";
  const uint64_t line = std::filesystem::file_size(mark) / 2;
  std::filesystem::resize_file(mark, line + 5);  // one copy is enough
  EXPECT_EQ(ExpectNoWrongAnswer(*Open(OpenMode::kReadOnly), "m/a", kRows), 0u);
  std::filesystem::resize_file(mark, line - 5);
  const absl::Status refused = OpenRocksStore(Options(OpenMode::kReadWrite)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(refused.message()).find("verify --repair"), std::string::npos) << refused;
  EXPECT_GT(Verify().damage_count, 0u);
  EXPECT_EQ(Verify(true).rows_marked_lost, 0u);
  EXPECT_EQ(Verify().damage_count, 0u);
  EXPECT_EQ(ExpectNoWrongAnswer(*Open(OpenMode::kReadWrite), "m/a", kRows), 0u);
}

// A repair of the mark must not accept a MANIFEST that has lost its end: the table it no longer
// names is damaged.
TEST_F(VerifyTest, ADamagedMarkHidesNoTableThatTheManifestHasLost) {
  constexpr size_t kRows = 1000;
  Import(*Open(), "m/a", kRows);
  const std::string manifest = Files("MANIFEST-", "").at(0);
  const uint64_t size = std::filesystem::file_size(manifest);
  std::filesystem::resize_file(path() + "/hps.manifest", 5);
  const std::string copy = directory_.path() + "/copy";
  std::filesystem::copy(path(), copy, std::filesystem::copy_options::recursive);
  for (uint64_t cut = size - 1; cut > size / 2; cut -= 23) {
    std::filesystem::remove_all(path());
    std::filesystem::copy(copy, path(), std::filesystem::copy_options::recursive);
    std::filesystem::resize_file(manifest, cut);
    const auto repaired = VerifyRocksStore(Options(OpenMode::kReadWrite), true, {});
    EXPECT_TRUE(!repaired.ok() || repaired->damage_count > 0);
    const auto store = OpenRocksStore(Options(OpenMode::kReadWrite));
    if (store.ok()) {
      ExpectNoWrongAnswer(**store, "m/a", kRows);
    } else {
      EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
    }
  }
}

TEST_F(VerifyTest, AMissingTableFileIsFoundAtOpenAndByVerify) {
  {
    const auto store = Open();
    Import(*store, "m/a", 1000);
  }
  std::filesystem::remove(RowFile());
  EXPECT_EQ(OpenRocksStore(Options(OpenMode::kReadWrite)).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_GT(Verify().damage_count, 0u);
}

// Includes the file of the catalog, without which no table is known. Catches: reporting this as a
// failing disk and listing no file.
TEST_F(VerifyTest, EveryMissingTableFileIsListed) {
  {
    const auto store = Open();
    Import(*store, "m/a", 1000);
  }
  for (const std::string& file : Files("", ".sst")) {
    std::filesystem::rename(file, file + ".aside");
    EXPECT_EQ(OpenRocksStore(Options(OpenMode::kReadOnly)).status().code(),
              absl::StatusCode::kDataLoss);
    const auto report = VerifyRocksStore(Options(OpenMode::kReadOnly), false, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->damage_count, 0u) << file;
    std::filesystem::rename(file + ".aside", file);
  }
  EXPECT_EQ(Verify().damage_count, 0u);
}

TEST_F(VerifyTest, AMissingCurrentIsDataLossAndNeverANewStore) {
  {
    const auto store = Open();
    Import(*store, "m/a", 1000);
  }
  std::filesystem::remove(path() + "/CURRENT");
  EXPECT_EQ(OpenRocksStore(Options(OpenMode::kCreate)).status().code(),
            absl::StatusCode::kDataLoss);
  const VerifyReport report = Verify();
  ASSERT_GT(report.damage_count, 0u);
  EXPECT_EQ(report.damage[0].file, "CURRENT");
}

// If a MANIFEST was cut between records, RocksDB takes the cut for its end. The rows of the import
// are then missing, which must not look like a store without the table.
TEST_F(VerifyTest, ATruncatedManifestNeverLosesATableSilently) {
  constexpr size_t kRows = 1000;
  {
    const auto store = Open();
    Import(*store, "m/a", kRows);
  }
  const std::string manifest = Files("MANIFEST-", "").at(0);
  const uint64_t size = std::filesystem::file_size(manifest);
  for (uint64_t cut = size - 1; cut > 0; cut -= std::min<uint64_t>(cut, 37)) {
    const std::string copy = directory_.path() + "/copy";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(path(), copy, std::filesystem::copy_options::recursive);
    std::filesystem::resize_file(copy + "/" + std::filesystem::path(manifest).filename().string(),
                                 cut);
    RocksStoreOptions options = TestOptions(copy);
    options.mode = OpenMode::kReadWrite;
    auto store = OpenRocksStore(options);
    if (store.ok()) {
      EXPECT_EQ(ExpectNoWrongAnswer(**store, "m/a", kRows), 0u) << "cut at " << cut;
    } else {
      EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
    }
  }
}

}  // namespace
}  // namespace hps
