// Imports into page files: what a store does with the files, over its life.
#include "l3_rocksdb/files/page_store.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "base/macros.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

constexpr uint32_t kPageDim = 8;
constexpr Key kPageRowCount = 1'000;

class PageStoreTest : public testing::Test {
 protected:
  void Open() {
    table_.reset();
    store_.reset();
    auto store = OpenRocksStore(options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // Keys 0, 2, 4, ...; rows of `version`, which stamps them only.
  void Import(Version stamp) {
    Open();
    const std::vector<TableSpec> specs = {{.name = "m/t", .dim = kPageDim}};
    auto import = store_->BeginImport(specs);
    ASSERT_TRUE(import.ok()) << import.status();
    std::vector<Key> keys;
    for (Key key = 0; key < kPageRowCount; ++key) keys.push_back(2 * key);
    StampedRows rows(stamp, kPageDim * 4, keys);
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    const auto committed = (*import)->Commit();
    ASSERT_TRUE(committed.ok()) << committed.status();
    table_ = *store_->OpenTable("m/t");
  }
  void Reopen() {
    Open();
    table_ = *store_->OpenTable("m/t");
  }
  std::vector<std::string> PageFiles() const { return PageFilesOf(directory_.Path("store")); }
  FetchOutcome OutcomeOf(Key key, uint64_t stamp, Version version = 0) {
    FetchedRows fetched(*table_, {key});
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    if (fetched.outcomes[0] == FetchOutcome::kHit) {
      EXPECT_EQ(fetched.versions[0], version);
      EXPECT_TRUE(StampedRow::Matches(stamp, key, version, fetched.row(0))) << key;
    }
    return fetched.outcomes[0];
  }
  // FetchBatch::deletions of absent keys.
  std::vector<Version> DeletionsOf(const std::vector<Key>& keys) {
    std::vector<std::byte> bytes(keys.size() * kPageDim * 4);
    std::vector<FetchOutcome> outcomes(keys.size());
    std::vector<Version> deletions(keys.size(), 77);
    EXPECT_TRUE(table_
                    ->Fetch({.keys = keys,
                             .rows = {bytes.data(), keys.size(), kPageDim * 4, kPageDim * 4},
                             .outcomes = outcomes,
                             .deletions = deletions},
                            kNoDeadline)
                    .ok());
    EXPECT_EQ(outcomes, std::vector<FetchOutcome>(keys.size(), FetchOutcome::kAbsent));
    return deletions;
  }
  VerifyReport Verify(bool repair = false) {
    table_.reset();
    store_.reset();
    const auto report = VerifyRocksStore(options_, repair, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : VerifyReport();
  }

  TestDirectory directory_;
  RocksStoreOptions options_ = TestOptions(directory_.Path("store"));
  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
};

TEST_F(PageStoreTest, ServesImportedAndChangedRows) {
  Import(1);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
    EXPECT_EQ(OutcomeOf(11, 1), FetchOutcome::kAbsent);
    Reopen();
  }
  StampedRows changed(1, kPageDim * 4, {10, 11}, 5);
  const std::vector<Key> deletes = {12, 13};
  ASSERT_TRUE(table_->Write({.upserts = changed.batch(), .deletes = deletes}).ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(OutcomeOf(10, 1, 5), FetchOutcome::kHit);
    EXPECT_EQ(OutcomeOf(11, 1, 5), FetchOutcome::kHit);
    EXPECT_EQ(OutcomeOf(12, 1), FetchOutcome::kAbsent);
    EXPECT_EQ(OutcomeOf(13, 1), FetchOutcome::kAbsent);
    EXPECT_EQ(OutcomeOf(14, 1), FetchOutcome::kHit);
    Reopen();
  }
  const VerifyReport report = Verify();
  EXPECT_EQ(report.damage_count, 0u);
  EXPECT_EQ(report.rows, static_cast<uint64_t>(kPageRowCount));  // one more, one less
}

// Catches: a replay of old changes that takes a deleted key for one that never existed.
TEST_F(PageStoreTest, VersionsOfDeletionsAreKnownUntilAMerge) {
  Import(1);
  EXPECT_EQ(DeletionsOf({1, 3}), (std::vector<Version>{0, 0})) << "never deleted";
  const auto erase = [this](std::vector<Key> keys, std::vector<Version> versions) {
    ASSERT_TRUE(table_->Write({.deletes = keys, .delete_versions = versions}).ok());
  };
  erase({1, 2}, {5, 6});
  erase({4}, {});  // as a direct change does
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(DeletionsOf({1, 2, 3, 4}), (std::vector<Version>{5, 6, 0, kDeletionUnknown}));
    Reopen();
  }
  options_.role = OwnerRole::kServer;
  options_.merge_keys_min = 1;
  options_.config.merge_share = 0.001;
  Open();
  ASSERT_TRUE(AwaitCondition([this] { return store_->Statistics().merges > 0; }));
  table_ = *store_->OpenTable("m/t");
  EXPECT_EQ(DeletionsOf({1, 2, 3, 4}), std::vector<Version>(4, kDeletionUnknown));
  options_.config.merge_share = 0;
  Reopen();
  erase({6}, {9});
  EXPECT_EQ(DeletionsOf({6, 7}), (std::vector<Version>{9, kDeletionUnknown}));
}

TEST_F(PageStoreTest, RemovesReplacedAndDroppedFiles) {
  Import(1);
  ASSERT_EQ(PageFiles().size(), 1u);
  const std::string first = PageFiles()[0];
  Import(2);
  ASSERT_EQ(PageFiles().size(), 1u);
  EXPECT_NE(PageFiles()[0], first);
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  table_.reset();
  ASSERT_TRUE(store_->Drop("m/t").ok());
  EXPECT_TRUE(PageFiles().empty());
}

TEST_F(PageStoreTest, RemovesFilesThatTheCatalogDoesNotName) {
  Import(1);
  table_.reset();
  store_.reset();
  directory_.Write("store/pages/0000000000abc-0", "left over");
  Reopen();
  EXPECT_EQ(PageFiles().size(), 1u);
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
}

// The catalog of a damaged store may lack a table, so nothing of it is removed.
TEST_F(PageStoreTest, ADamagedStoreKeepsUnknownTables) {
  Import(1);
  table_.reset();
  store_.reset();
  {
    const auto database = *Database::Open(options_);
    MutexLock lock(database->change_mutex());
    const auto families = *database->files().Create({{.incarnation = 7}});
    database->db().DestroyColumnFamilyHandle(families.at(0)).PermitUncheckedError();
  }
  directory_.Write("store/pages/0000000000007-0", "of a table that the catalog lacks");
  ASSERT_TRUE(Database::OpenDamaged(options_).ok());
  EXPECT_EQ(PageFiles().size(), 2u);
  Reopen();
  EXPECT_EQ(PageFiles().size(), 1u);
}

TEST_F(PageStoreTest, AMissingFileIsLost) {
  Import(1);
  std::filesystem::remove(PageFiles()[0]);
  Reopen();
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kLost);
  EXPECT_EQ(OutcomeOf(2 * kPageRowCount, 1), FetchOutcome::kAbsent);
  const VerifyReport report = Verify();
  EXPECT_EQ(report.damage_count, 1u);
  EXPECT_EQ(report.rows_lost, static_cast<uint64_t>(kPageRowCount));
  EXPECT_EQ(report.rows, 0u);
  Import(2);
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
}

class PageDamageTest : public PageStoreTest {
 protected:
  static constexpr uint64_t kPageBytes = 4096;  // of rows of 32 bytes
  static constexpr uint64_t kPage = 3;          // that is damaged

  // Keys 10 and 600 are changed, 12 and 602 deleted. The page of 600 and 602 is then damaged.
  void MakeDamagedPage() {
    Import(1);
    StampedRows changed(1, kPageDim * 4, {10, 600}, 5);
    const std::vector<Key> deletes = {12, 602};
    ASSERT_TRUE(table_->Write({.upserts = changed.batch(), .deletes = deletes}).ok());
    FlipBit(PageFiles()[0], kPageBytes + kPage * kPageBytes + 1000);
  }
  // Every answer must be right or "lost"; returns the keys that are lost.
  std::set<Key> LostKeys() {
    std::vector<Key> keys;
    for (Key key = -1; key <= 2 * kPageRowCount; ++key) keys.push_back(key);
    const FetchedRows fetched(*table_, keys);
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    std::set<Key> lost;
    for (size_t i = 0; i < keys.size(); ++i) {
      const Key key = keys[i];
      const Version version = key == 10 || key == 600 ? 5 : 0;
      const bool exists =
          key >= 0 && key < 2 * kPageRowCount && key % 2 == 0 && key != 12 && key != 602;
      if (fetched.outcomes[i] == FetchOutcome::kLost) {
        lost.insert(key);
      } else if (exists) {
        EXPECT_EQ(fetched.outcomes[i], FetchOutcome::kHit) << key;
        EXPECT_TRUE(StampedRow::Matches(1, key, version, fetched.row(i))) << key;
        EXPECT_EQ(fetched.versions[i], version) << key;
      } else {
        EXPECT_EQ(fetched.outcomes[i], FetchOutcome::kAbsent) << key;
      }
    }
    return lost;
  }
  absl::Status ScanAll() {
    HPS_ASSIGN_OR_RETURN(const auto cursor, table_->Scan());
    std::vector<Key> keys(100);
    StampedRows rows(1, kPageDim * 4, keys);
    for (;;) {
      HPS_ASSIGN_OR_RETURN(const size_t count, cursor->Next(keys, rows.rows(), {}));
      if (count == 0) return absl::OkStatus();
    }
  }
};

TEST_F(PageDamageTest, TheRangeOfADamagedPageIsLost) {
  MakeDamagedPage();
  const uint64_t damage_before = store_->Statistics().damaged_reads;
  const std::set<Key> lost = LostKeys();
  EXPECT_GT(store_->Statistics().damaged_reads, damage_before);
  // 48 bytes for each row of a page: some 84 rows, and as many keys between them.
  ASSERT_GT(lost.size(), 100u);
  ASSERT_LT(lost.size(), 200u);
  EXPECT_EQ(static_cast<size_t>(*lost.rbegin() - *lost.begin() + 1), lost.size() + 2);
  EXPECT_FALSE(lost.contains(600)) << "its new row is in RocksDB";
  EXPECT_FALSE(lost.contains(602)) << "it was deleted";
  EXPECT_EQ(ScanAll().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PageDamageTest, VerifyFindsItAndARepairLeavesItLost) {
  MakeDamagedPage();
  const std::set<Key> lost = LostKeys();
  for (const bool repair : {false, true}) {
    const VerifyReport report = Verify(repair);
    EXPECT_EQ(report.damage_count, 1u);
    EXPECT_EQ(report.rows_lost, lost.size() / 2 + 1);
    EXPECT_NE(report.damage.at(0).what.find("import the table again"), std::string::npos);
    Reopen();
    EXPECT_EQ(LostKeys(), lost);
  }
  Import(1);
  EXPECT_EQ(Verify().damage_count, 0u);
}

// A store whose changes can't all be read serves the rest, and takes a new import.
TEST_F(PageDamageTest, DamagedChangesAreLost) {
  Import(1);
  std::vector<Key> keys;
  for (Key key = 0; key < kPageRowCount; ++key) keys.push_back(2 * key);
  StampedRows changed(1, kPageDim * 4, keys, 5);
  ASSERT_TRUE(table_->Write({.upserts = changed.batch()}).ok());
  Reopen();  // which writes the log to table files
  table_.reset();
  store_.reset();
  std::string largest;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.Path("store"))) {
    if (entry.path().extension() != ".sst") continue;
    if (largest.empty() || entry.file_size() > std::filesystem::file_size(largest))
      largest = entry.path().string();
  }
  FlipBit(largest, std::filesystem::file_size(largest) / 3);
  Reopen();
  const FetchedRows fetched(*table_, keys);
  ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
  size_t lost = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    lost += fetched.outcomes[i] == FetchOutcome::kLost ? 1 : 0;
    if (fetched.outcomes[i] == FetchOutcome::kLost) continue;
    ASSERT_EQ(fetched.outcomes[i], FetchOutcome::kHit);
    EXPECT_TRUE(StampedRow::Matches(1, keys[i], 5, fetched.row(i)))
        << "an older row of " << keys[i];
  }
  EXPECT_GT(lost, 0u);
  EXPECT_LT(lost, keys.size());
  EXPECT_GT(Verify(true).damage_count, 0u);
  Import(2);
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  EXPECT_EQ(Verify().damage_count, 0u);
}

// A process that reads the store while another one writes to it.
TEST_F(PageStoreTest, AReaderFollowsChangesAndImports) {
  Import(1);
  RocksStoreOptions options = options_;
  options.mode = OpenMode::kReadOnly;
  const auto opened = OpenRocksStore(options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  DurableStore& reader = **opened;
  std::unique_ptr<DurableTable> writers = std::move(table_);
  table_ = *reader.OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  StampedRows changed(1, kPageDim * 4, {10, 11}, 5);
  const std::vector<Key> deletes = {12};
  ASSERT_TRUE(writers->Write({.upserts = changed.batch(), .deletes = deletes}).ok());
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  ASSERT_TRUE(reader.Refresh()->changed);
  table_ = *reader.OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 1, 5), FetchOutcome::kHit);
  EXPECT_EQ(OutcomeOf(11, 1, 5), FetchOutcome::kHit);
  EXPECT_EQ(OutcomeOf(12, 1), FetchOutcome::kAbsent);
  EXPECT_EQ(OutcomeOf(14, 1), FetchOutcome::kHit);
  writers.reset();
  const std::unique_ptr<DurableTable> old = std::move(table_);
  Import(2);
  EXPECT_EQ(PageFiles().size(), 1u);
  table_ = *reader.OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(14, 1), FetchOutcome::kHit) << "it holds the file that is gone";
  ASSERT_TRUE(reader.Refresh()->changed);
  table_ = *reader.OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  EXPECT_FALSE(old->IsCurrent());
}

// The files of the state that it opens are removed before it reaches them.
TEST_F(PageStoreTest, AReaderTakesNoReplacedFileForLost) {
  Import(1);
  RocksStoreOptions options = options_;
  options.mode = OpenMode::kReadOnly;
  FaultPoints::Arm("l3_pages.open.call", {.action = FaultAction::kWait, .times = 1});
  absl::StatusOr<std::unique_ptr<DurableStore>> opened = absl::UnknownError("");
  std::thread reader([&] { opened = OpenRocksStore(options); });
  EXPECT_TRUE(AwaitCondition([] { return FaultPoints::IsWaiting("l3_pages.open.call"); }));
  Import(2);
  FaultPoints::DisarmAll();
  reader.join();
  ASSERT_TRUE(opened.ok()) << opened.status();
  table_ = *(*opened)->OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  table_.reset();
}

// A reader that is told of a write finds it, although the row was in a page file before.
TEST_F(PageStoreTest, AReaderFindsWhatAWriterHasWritten) {
  Import(1);
  constexpr Version kVersions = 200;
  const std::vector<Key> keys = {2, 3, 700, 1'001, 1'998};
  std::atomic<Version> written{0};
  std::thread writer([&] {
    for (Version version = 1; version <= kVersions; ++version) {
      const Key key = keys[version % keys.size()];
      StampedRows rows(1, kPageDim * 4, {key}, version);
      ASSERT_TRUE(table_->Write({.upserts = rows.batch()}).ok());
      written.store(version, std::memory_order_release);
    }
  });
  uint64_t wrong = 0;
  for (Version seen = 0; seen < kVersions;) {
    seen = written.load(std::memory_order_acquire);
    const FetchedRows fetched(*table_, keys);
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    for (Version version = seen > 4 ? seen - 4 : 1; version <= seen; ++version) {
      const size_t i = version % keys.size();
      wrong += fetched.outcomes[i] != FetchOutcome::kHit || fetched.versions[i] < version ? 1 : 0;
    }
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

// As on a file system without hard links.
class NoLinksEnv final : public rocksdb::EnvWrapper {
 public:
  NoLinksEnv() : rocksdb::EnvWrapper(rocksdb::Env::Default()) {}
  const char* Name() const override { return "NoLinksEnv"; }
  rocksdb::Status LinkFile(const std::string&, const std::string&) override {
    return rocksdb::Status::NotSupported("no hard links");
  }
};

TEST_F(PageStoreTest, FilesAreCopiedWhereThereAreNoHardLinks) {
  NoLinksEnv env;
  options_.env = &env;
  Import(1);
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  ASSERT_TRUE(store_->Snapshot("s").ok());
  Import(2);
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  EXPECT_EQ(PageFiles().size(), 1u);
  options_.config.path = directory_.Path("store/snapshots/s");
  Reopen();
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  EXPECT_EQ(Verify().damage_count, 0u);
  table_.reset();
  store_.reset();
}

// Changed keys are mixed with others in one batch, in any order; some of them twice.
TEST_F(PageStoreTest, ABatchOfChangedAndOtherKeys) {
  Import(1);
  std::vector<Key> changed;
  std::vector<Key> deleted;
  for (Key key = 0; key < 2 * kPageRowCount; key += 7) changed.push_back(key);
  for (Key key = 1; key < 2 * kPageRowCount; key += 7) deleted.push_back(key);
  StampedRows rows(1, kPageDim * 4, changed, 5);
  ASSERT_TRUE(table_->Write({.upserts = rows.batch(), .deletes = deleted}).ok());
  std::vector<Key> keys;
  for (Key key = 0; key < 2 * kPageRowCount; ++key) keys.push_back(key);
  keys.insert(keys.end(), changed.begin(), changed.end());
  for (const bool sorted : {true, false}) {
    std::sort(keys.begin(), keys.end());
    if (!sorted) std::shuffle(keys.begin(), keys.end(), std::mt19937_64(1));
    const FetchedRows fetched(*table_, keys);
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    for (size_t i = 0; i < keys.size(); ++i) {
      const Key key = keys[i];
      const bool is_changed = key % 7 == 0;
      const bool exists = is_changed || (key % 2 == 0 && key % 7 != 1);
      ASSERT_EQ(fetched.outcomes[i], exists ? FetchOutcome::kHit : FetchOutcome::kAbsent) << key;
      if (exists) {
        EXPECT_TRUE(StampedRow::Matches(1, key, is_changed ? 5 : 0, fetched.row(i))) << key;
      }
    }
  }
}

class StagedPageStoreTest : public PageStoreTest {
 protected:
  // A server has the store; a command imports beside it. Returns the path of the staged page file.
  std::string Stage(Version stamp) {
    options_.role = OwnerRole::kServer;
    Import(1);
    RocksStoreOptions command = options_;
    command.role = OwnerRole::kCommand;
    const std::vector<TableSpec> specs = {{.name = "m/t", .dim = kPageDim}};
    auto import = StageImport(command, specs);
    EXPECT_TRUE(import.ok()) << import.status();
    StampedRows rows(stamp, kPageDim * 4, {10, 20});
    EXPECT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    const auto committed = (*import)->Commit();
    EXPECT_TRUE(committed.ok() && committed->staged) << committed.status();
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_.Path("store/staging"))) {
      if (entry.path().extension() == ".rows") return entry.path().string();
    }
    ADD_FAILURE() << "no staged page file";
    return {};
  }
};

TEST_F(StagedPageStoreTest, TheServerTakesIt) {
  Stage(2);
  const auto changed = store_->Refresh();
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(changed->changed);
  table_ = *store_->OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  EXPECT_EQ(OutcomeOf(12, 2), FetchOutcome::kAbsent);
  EXPECT_EQ(PageFiles().size(), 1u);
}

TEST_F(StagedPageStoreTest, TheServerRejectsADamagedFile) {
  const std::string path = Stage(2);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4096);
  static_cast<void>(store_->Refresh());
  EXPECT_EQ(store_->TakeRejectedImports("m").size(), 1u);
  table_ = *store_->OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  EXPECT_EQ(PageFiles().size(), 1u);
}

TEST_F(PageStoreTest, ASnapshotHasTheFiles) {
  Import(1);
  StampedRows changed(1, kPageDim * 4, {10}, 5);
  ASSERT_TRUE(table_->Write({.upserts = changed.batch()}).ok());
  ASSERT_TRUE(store_->Snapshot("s").ok());
  Import(2);
  options_.config.path = directory_.Path("store/snapshots/s");
  Reopen();
  EXPECT_EQ(OutcomeOf(10, 1, 5), FetchOutcome::kHit);
  EXPECT_EQ(OutcomeOf(12, 1), FetchOutcome::kHit);
}

}  // namespace
}  // namespace hps
