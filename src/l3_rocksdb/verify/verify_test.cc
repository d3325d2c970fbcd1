#include "l3_rocksdb/verify/verify.h"

#include <gtest/gtest.h>

#include <filesystem>
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
  static void Import(DurableStore& store, const std::string& name, size_t count) {
    TableSpec spec;
    spec.name = name;
    spec.dim = kRowBytes / 4;
    auto import = store.BeginImport({&spec, 1});
    ASSERT_TRUE(import.ok()) << import.status();
    StampedRows rows(kStamp, kRowBytes, Keys(count));
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
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
  static constexpr Version kChanged = 5;
  // Writes rows, which opening then flushes to a table file.
  void Change(std::vector<Key> keys) {
    {
      const auto store = Open(OpenMode::kReadWrite);
      StampedRows rows(kStamp, kRowBytes, std::move(keys), kChanged);
      ASSERT_TRUE((*store->OpenTable("m/a"))->Write({rows.batch(), {}, {}}).ok());
    }
    ASSERT_NE(Open(OpenMode::kReadWrite), nullptr);
  }
  // Expects every imported key to be lost, or a hit with its row: the first `changed_count` with
  // the changed one. Returns the lost keys.
  static size_t ExpectNoWrongAnswer(DurableStore& store, const std::string& name, size_t count,
                                    size_t changed_count = 0) {
    auto table = store.OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    const FetchedRows present(**table, Keys(count));
    EXPECT_TRUE(present.counts.ok()) << present.counts.status();
    size_t lost = 0;
    for (size_t i = 0; i < count; ++i) {
      lost += present.outcomes[i] == FetchOutcome::kLost;
      EXPECT_NE(present.outcomes[i], FetchOutcome::kAbsent) << "key " << present.keys[i];
      if (present.outcomes[i] == FetchOutcome::kHit) {
        EXPECT_EQ(present.versions[i], i < changed_count ? kChanged : 0);
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
  Import(*Open(), "m/a", kRows);
  Change(Keys(kRows / 2));
  std::vector<std::string> files = Files("", ".sst");
  for (const std::string& file : PageFilesOf(path())) files.push_back(file);
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
      ExpectNoWrongAnswer(**store, "m/a", kRows, kRows / 2);
    } else {
      EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
    }
    FlipBit(file, byte, bit);
  }
  EXPECT_GT(opened_count, 0u);
  EXPECT_EQ(Verify().damage_count, 0u);
}

TEST_F(VerifyTest, EachLongStepReportsProgress) {
  Import(*Open(), "m/a", 4000);
  std::vector<std::string> steps;
  const auto report =
      VerifyRocksStore(Options(OpenMode::kReadWrite), true, [&](const Progress& progress) {
        EXPECT_LE(progress.done, progress.total);
        if (steps.empty() || steps.back() != progress.step) steps.push_back(progress.step);
        if (progress.step == "reading rows") {
          EXPECT_EQ(progress.total, 4000u);
        }
      });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(steps, (std::vector<std::string>{"reading files", "reading rows"}));
}

// Also keys that the page files do not have.
TEST_F(VerifyTest, DamagedChangesAreFoundAndNeverCalledAbsent) {
  constexpr size_t kRows = 4000;
  std::vector<Key> changed = Keys(kRows);
  for (Key key = 1; key < 12'000; key += 3) changed.push_back(key);
  Import(*Open(), "m/a", kRows);
  Change(changed);
  for (const std::string& file : Files("", ".sst")) {
    if (std::filesystem::file_size(file) > 30'000) FlipBit(file, 9'000, 1);
  }
  size_t lost = 0;
  {
    const auto store = Open(OpenMode::kReadWrite);
    const FetchedRows fetched(**store->OpenTable("m/a"), changed);
    for (size_t i = 0; i < changed.size(); ++i) {
      lost += fetched.outcomes[i] == FetchOutcome::kLost ? 1 : 0;
      EXPECT_NE(fetched.outcomes[i], FetchOutcome::kAbsent) << "key " << changed[i];
      if (fetched.outcomes[i] == FetchOutcome::kHit) {
        EXPECT_EQ(fetched.versions[i], kChanged) << "key " << changed[i];
      }
    }
  }
  ASSERT_GT(lost, 0u);
  ASSERT_LT(lost, 200u);  // at most one block of 4 KiB
  for (const bool repair : {false, true}) {
    const auto manifest = Files("MANIFEST-", "");
    const VerifyReport report = Verify(repair);
    EXPECT_EQ(Files("MANIFEST-", ""), manifest) << "nothing can be mended, so nothing is written";
    EXPECT_GT(report.damage_count, 0u);
    EXPECT_GE(report.rows_lost, lost);
    EXPECT_LE(report.rows_lost, changed.size());
    const auto says = [&](const std::string& part) {
      return std::any_of(report.damage.begin(), report.damage.end(), [&](const Damage& damage) {
        return damage.table == "m/a" && damage.what.find(part) != std::string::npos;
      });
    };
    EXPECT_TRUE(says("unreadable changes after key "));
    EXPECT_TRUE(says("import the table again"));
    const auto store = Open(OpenMode::kReadWrite);
    const FetchedRows fetched(**store->OpenTable("m/a"), changed);
    EXPECT_EQ(fetched.counts->lost, lost) << "a repair leaves them lost";
    EXPECT_EQ(fetched.counts->hits, changed.size() - lost);
  }

  // A scan reports the loss too.
  const auto store = Open(OpenMode::kReadWrite);
  const auto cursor = (*store->OpenTable("m/a"))->Scan();
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
  EXPECT_GT(Verify(true).damage_count, 0u);
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

// Includes the file of the catalog, without which no table is known. Catches: reporting this as a
// failing disk and listing no file.
TEST_F(VerifyTest, EveryMissingTableFileIsListed) {
  Import(*Open(), "m/a", 1000);
  Change({1, 2, 3});
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
