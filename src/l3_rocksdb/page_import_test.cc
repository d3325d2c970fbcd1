// Imports into page files: what a store does with the files, over its life.
#include <gtest/gtest.h>

#include <filesystem>

#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/salvage/verify.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr uint32_t kPageDim = 8;
constexpr Key kPageRowCount = 1'000;

class PageImportTest : public testing::Test {
 protected:
  void Open() {
    table_.reset();
    store_.reset();
    auto store = OpenRocksStore(options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // Keys 0, 2, 4, ...; rows of `version`, which stamps them only.
  void Import(Version stamp, bool page_files = true) {
    options_.imports_page_files = page_files;
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
  std::vector<std::string> PageFiles() const {
    std::vector<std::string> names;
    const std::string pages = directory_.Path("store/pages");
    if (!std::filesystem::exists(pages)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(pages))
      names.push_back(entry.path().string());
    return names;
  }
  FetchOutcome OutcomeOf(Key key, uint64_t stamp, Version version = 0) {
    FetchedRows fetched(*table_, {key});
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    if (fetched.outcomes[0] == FetchOutcome::kHit) {
      EXPECT_EQ(fetched.versions[0], version);
      EXPECT_TRUE(StampedRow::Matches(stamp, key, version, fetched.row(0))) << key;
    }
    return fetched.outcomes[0];
  }
  VerifyReport Verify() {
    table_.reset();
    store_.reset();
    const auto report = VerifyRocksStore(options_, false, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : VerifyReport();
  }

  TestDirectory directory_;
  RocksStoreOptions options_ = PageTestOptions(directory_.Path("store"));
  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
};

TEST_F(PageImportTest, ServesImportedAndChangedRows) {
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

TEST_F(PageImportTest, RemovesReplacedAndDroppedFiles) {
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

TEST_F(PageImportTest, ATableInRocksDbIsReplaced) {
  Import(1, false);
  EXPECT_TRUE(PageFiles().empty());
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  Import(2, true);
  EXPECT_EQ(PageFiles().size(), 1u);
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  Import(3, false);
  EXPECT_TRUE(PageFiles().empty());
  EXPECT_EQ(OutcomeOf(10, 3), FetchOutcome::kHit);
}

TEST_F(PageImportTest, RemovesFilesThatTheCatalogDoesNotName) {
  Import(1);
  table_.reset();
  store_.reset();
  directory_.Write("store/pages/0000000000abc-0", "left over");
  Reopen();
  EXPECT_EQ(PageFiles().size(), 1u);
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
}

TEST_F(PageImportTest, AMissingFileIsLost) {
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

class StagedPageImportTest : public PageImportTest {
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

TEST_F(StagedPageImportTest, TheServerTakesIt) {
  Stage(2);
  const auto changed = store_->Refresh();
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(*changed);
  table_ = *store_->OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 2), FetchOutcome::kHit);
  EXPECT_EQ(OutcomeOf(12, 2), FetchOutcome::kAbsent);
  EXPECT_EQ(PageFiles().size(), 1u);
}

TEST_F(StagedPageImportTest, TheServerRejectsADamagedFile) {
  const std::string path = Stage(2);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4096);
  static_cast<void>(store_->Refresh());
  EXPECT_EQ(store_->TakeRejectedImports("m").size(), 1u);
  table_ = *store_->OpenTable("m/t");
  EXPECT_EQ(OutcomeOf(10, 1), FetchOutcome::kHit);
  EXPECT_EQ(PageFiles().size(), 1u);
}

TEST_F(PageImportTest, ASnapshotHasTheFiles) {
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
