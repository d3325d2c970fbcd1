// Staged imports that wait for the store's owner: their order, those that are rejected, and what
// later imports report about them.
#include "l3_rocksdb/files/staging.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "base/logging.h"
#include "base/public_message.h"
#include "l3_rocksdb/catalog_records.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import_commit.h"
#include "l3_rocksdb/store_import.h"
#include "l3_rocksdb/test_store.h"
#include "testing/await.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

constexpr uint32_t kDim = 4;

class StagingTest : public testing::Test {
 protected:
  StagingTest() {
    SetLogLevel(LogLevel::kOff);
    OpenServer();
  }
  ~StagingTest() override {
    FaultPoints::DisarmAll();
    SetLogLevel(LogLevel::kWarning);
  }

  void OpenServer() {
    RocksStoreOptions server = Options();
    server.role = OwnerRole::kServer;
    auto opened = OpenRocksStore(server);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) server_ = *std::move(opened);
  }
  std::string path() const { return directory_.path() + "/store"; }
  RocksStoreOptions Options() const { return TestOptions(path()); }

  static std::vector<TableSpec> Specs(const std::vector<std::string>& names) {
    std::vector<TableSpec> specs;
    for (const std::string& name : names) specs.push_back({.name = "m/" + name, .dim = kDim});
    return specs;
  }
  // Adds `row_count` rows to each table and commits.
  static absl::StatusOr<BulkImport::Result> Fill(absl::StatusOr<std::unique_ptr<BulkImport>> import,
                                                 size_t table_count, Key row_count) {
    HPS_RETURN_IF_ERROR(import.status());
    std::vector<Key> keys;
    for (Key key = 0; key < row_count; ++key) keys.push_back(key);
    for (size_t table = 0; table < table_count; ++table) {
      StampedRows rows(1, kDim * 4, keys);
      HPS_RETURN_IF_ERROR((*import)->Add(table, 0, rows.keys(), rows.rows()));
      HPS_RETURN_IF_ERROR((*import)->FinishPart(table, 0));
    }
    return (*import)->Commit();
  }
  absl::Status ImportAsOwner(const std::vector<std::string>& names, Key row_count) {
    return Fill(server_->BeginImport(Specs(names)), names.size(), row_count).status();
  }
  void Stage(const std::vector<std::string>& names, Key row_count) {
    const auto result = Fill(StageImport(Options(), Specs(names)), names.size(), row_count);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->staged);
  }
  // Stages an import and damages its page file.
  void StageDamaged(const std::vector<std::string>& names, Key row_count) {
    const std::vector<std::string> before = StagedDirectories();
    Stage(names, row_count);
    for (const std::string& directory : StagedDirectories()) {
      if (std::find(before.begin(), before.end(), directory) != before.end()) continue;
      std::fstream file(directory + "/t0-p0.rows", std::ios::in | std::ios::out);
      file.seekp(100).put('\x55').put('\x55').put('\x55');
      ASSERT_TRUE(file.flush());
    }
  }
  std::map<std::string, uint64_t> RowCounts() const {
    std::map<std::string, uint64_t> counts;
    const auto tables = server_->Tables();
    EXPECT_TRUE(tables.ok()) << tables.status();
    for (const TableInfo& table : *tables) counts[table.spec.name] = table.row_count;
    return counts;
  }
  // Tables of the model whose imports were rejected; "" = unknown table.
  std::vector<std::string> Rejected() {
    std::vector<std::string> tables;
    for (const RejectedImport& rejected : server_->TakeRejectedImports("m"))
      tables.push_back(rejected.table);
    return tables;
  }
  std::vector<std::string> StagedDirectories() const {
    std::vector<std::string> directories;
    if (!std::filesystem::exists(path() + "/staging")) return directories;
    for (const auto& entry : std::filesystem::directory_iterator(path() + "/staging"))
      directories.push_back(entry.path());
    return directories;
  }
  // Held as by an owner that is committing: newer staged imports remove nothing.
  FileLock CommitLock() const {
    auto lock = TakeCommitLock(path());
    EXPECT_TRUE(lock.ok()) << lock.status();
    return lock.ok() ? *std::move(lock) : FileLock();
  }
  // The tables of each waiting import, with the row count of its first table.
  using Waiting = std::vector<std::pair<std::vector<std::string>, uint64_t>>;
  Waiting WaitingImports() const {
    Waiting waiting;
    const auto imports = ListPendingImports(Options());
    EXPECT_TRUE(imports.ok()) << imports.status();
    for (const PendingImport& import : *imports) {
      waiting.push_back({{}, import.tables.at(0).row_count});
      for (const TableInfo& table : import.tables) waiting.back().first.push_back(table.spec.name);
    }
    return waiting;
  }
  // Makes the next `times` commits fail with a full disk.
  static void FailCommits(uint64_t times) {
    FaultPoints::Arm("l3.import.before_families",
                     {.action = FaultAction::kFail,
                      .status = absl::ResourceExhaustedError("planned: no space"),
                      .times = times});
  }

  using Counts = std::map<std::string, uint64_t>;
  using Tables = std::vector<std::string>;
  TestDirectory directory_;
  std::unique_ptr<DurableStore> server_;
};

// Catches: an older staged import that switches after a newer import of the owner.
TEST_F(StagingTest, TheOwnersImportComesAfterWhatWasStagedBefore) {
  Stage({"a", "b"}, 20);
  ASSERT_TRUE(ImportAsOwner({"a"}, 30).ok());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}, {"m/b", 20}}));
  EXPECT_TRUE(StagedDirectories().empty());
  EXPECT_FALSE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}, {"m/b", 20}}));
}

// Catches: a server that commits nothing, while every import leaves a copy on the disk.
TEST_F(StagingTest, AStagedImportIsRemovedWhenNewerOnesHaveAllItsTables) {
  Stage({"a", "b"}, 10);
  Stage({"c"}, 10);
  Stage({"b"}, 20);
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/a", "m/b"}, 10}, {{"m/c"}, 10}, {{"m/b"}, 20}}))
      << "tables imported together switch together";
  Stage({"a"}, 30);
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/c"}, 10}, {{"m/b"}, 20}, {{"m/a"}, 30}}));
  Stage({"a", "b"}, 40);
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/c"}, 10}, {{"m/a", "m/b"}, 40}}));
  EXPECT_EQ(StagedDirectories().size(), 2u);
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 40}, {"m/b", 40}, {"m/c", 10}}));
  EXPECT_EQ(Rejected(), Tables{});
}

// A second import of the same id can't be known when it is staged; it is rejected when it is taken.
TEST_F(StagingTest, AnImportIdIsStagedAndTakenOnce) {
  const auto stage_as = [&](const std::string& id, Key row_count) {
    auto import = StageImport(Options(), Specs({"a"}));
    HPS_RETURN_IF_ERROR(import.status());
    HPS_RETURN_IF_ERROR((*import)->SetImportId(id));
    return Fill(std::move(import), 1, row_count).status();
  };
  ASSERT_TRUE(stage_as("v1", 10).ok());
  EXPECT_EQ((*ListPendingImports(Options()))[0].tables[0].import_id, "v1");
  ASSERT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ((*server_->Tables())[0].import_id, "v1");
  EXPECT_TRUE(absl::IsFailedPrecondition(stage_as("v1", 20)));
  ASSERT_TRUE(stage_as("v2", 30).ok());
  const auto owners = server_->BeginImport(Specs({"a"}));
  ASSERT_TRUE((*owners)->SetImportId("v2").ok()) << "it is not taken yet";
  EXPECT_TRUE(absl::IsFailedPrecondition((*owners)->Commit().status()))
      << "the staged one was taken before";
  EXPECT_EQ((*server_->Tables())[0].import_id, "v2");
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}}));
  EXPECT_EQ(Rejected(), Tables{});
}

// Catches: files removed while the owner reads them, and the import then reported as damaged.
TEST_F(StagingTest, NothingIsRemovedWhileTheOwnerCommits) {
  Stage({"a"}, 10);
  FaultPoints::Arm("l3.import.before_families", {.action = FaultAction::kWait});
  absl::StatusOr<RefreshResult> changed;
  std::thread owner([&] { changed = server_->Refresh(); });
  EXPECT_TRUE(AwaitCondition([] { return FaultPoints::IsWaiting("l3.import.before_families"); }));
  Stage({"a"}, 20);
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/a"}, 10}, {{"m/a"}, 20}}));
  FaultPoints::DisarmAll();
  owner.join();
  EXPECT_TRUE(changed.ok() && changed->changed) << changed.status();
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}}));
  EXPECT_EQ(Rejected(), Tables{});
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/a"}, 20}}));
  Stage({"a"}, 30);
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/a"}, 30}})) << "the owner has ended";
}

// Catches: an import removed for a newer one that the store then refuses.
TEST_F(StagingTest, AnImportOfAnotherShapeRemovesNothing) {
  Stage({"a"}, 10);
  const TableSpec wide = {.name = "m/a", .dim = 2 * kDim};
  StampedRows rows(1, 2 * kDim * 4, {1, 2, 3});
  const auto import = StageImport(Options(), {&wide, 1});
  ASSERT_TRUE(import.ok()) << import.status();
  ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
  ASSERT_TRUE((*import)->Commit().ok());
  EXPECT_EQ(WaitingImports(), (Waiting{{{"m/a"}, 10}, {{"m/a"}, 3}}));
}

// The newer import reports no error, and a later import removes the files.
TEST_F(StagingTest, AReplacedImportThatCannotBeRemovedIsRemovedLater) {
  for (const char* point : {"l3.stage.before_removal", "l3.stage.in_removal"}) {
    SCOPED_TRACE(point);
    Stage({"a"}, 10);
    FaultPoints::Arm(point, {.action = FaultAction::kFail});
    Stage({"a"}, 20);
    FaultPoints::DisarmAll();
    EXPECT_EQ(StagedDirectories().size(), 2u);
    Stage({"a"}, 30);
    EXPECT_EQ(StagedDirectories().size(), 1u);
    EXPECT_TRUE(server_->Refresh()->changed);
    EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}}));
    EXPECT_EQ(Rejected(), Tables{});
  }
}

TEST_F(StagingTest, OtherProcessesListWaitingImports) {
  EXPECT_TRUE(ListPendingImports(Options())->empty());
  Stage({"a", "b"}, 20);
  Stage({"a"}, 30);
  const auto unfinished = StageImport(Options(), Specs({"c"}));
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  const auto waiting = ListPendingImports(Options());
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  ASSERT_EQ(waiting->size(), 2u) << "unfinished imports do not wait";
  ASSERT_EQ((*waiting)[0].tables.size(), 2u);
  EXPECT_EQ((*waiting)[0].tables[1].spec.name, "m/b");
  ASSERT_EQ((*waiting)[1].tables.size(), 1u);
  const TableInfo& newest = (*waiting)[1].tables[0];
  EXPECT_EQ(newest.row_count, 30u);
  EXPECT_EQ(newest.spec.dim, kDim);
  EXPECT_GT(newest.bytes, 30u * kDim * 4);
  EXPECT_GT(newest.incarnation, 0u);
  EXPECT_EQ((*waiting)[1].problem, "");
  EXPECT_EQ(StagedDirectories().size(), 3u);
  ASSERT_TRUE(server_->Refresh()->changed);
  EXPECT_TRUE(ListPendingImports(Options())->empty());
  RocksStoreOptions elsewhere = Options();
  elsewhere.config.path = directory_.path() + "/none";
  EXPECT_TRUE(ListPendingImports(elsewhere)->empty());
}

// Catches: files of killed imports that only the owner removes. Beside a running server, they would
// take the space that the next import needs.
TEST_F(StagingTest, ANewImportRemovesTheFilesOfEndedOnes) {
  Stage({"a"}, 20);
  const auto unfinished = StageImport(Options(), Specs({"b"}));
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  const std::string remains = path() + "/staging/0123456789abcdef";
  std::filesystem::create_directory(remains);
  std::ofstream(remains + "/lock").close();
  std::ofstream(remains + "/t0-p0.rows") << "rows";
  std::filesystem::create_directory(path() + "/staging/0123456789abcdee");  // without a lock file
  const auto next = StageImport(Options(), Specs({"c"}));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(std::filesystem::exists(remains));
  EXPECT_EQ(StagedDirectories().size(), 3u) << "what is ready or in the making stays";
  EXPECT_EQ(ListPendingImports(Options())->size(), 1u);
}

TEST_F(StagingTest, AWaitingImportThatCannotBeReadIsListedWithTheReason) {
  Stage({"a"}, 10);
  std::filesystem::resize_file(StagedDirectories().at(0) + "/manifest", 40);
  Stage({"b"}, 10);
  const auto waiting = ListPendingImports(Options());
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  ASSERT_EQ(waiting->size(), 2u);
  EXPECT_EQ((*waiting)[0].tables.at(0).spec.name, "m/b");
  EXPECT_TRUE((*waiting)[1].tables.empty());
  EXPECT_NE((*waiting)[1].problem.find("DATA_LOSS"), std::string::npos) << (*waiting)[1].problem;
  EXPECT_EQ(StagedDirectories().size(), 2u) << "a look changes nothing";
}

TEST_F(StagingTest, AWaitingImportDelaysNoOther) {
  Stage({"a"}, 10);
  Stage({"b"}, 20);
  FailCommits(1);
  const auto refreshed = server_->Refresh();
  ASSERT_TRUE(refreshed.ok()) << refreshed.status();
  EXPECT_TRUE(refreshed->changed);
  // Catches: a commit of one import that hides that another one waits.
  ASSERT_EQ(refreshed->waiting.size(), 1u);
  EXPECT_EQ(refreshed->waiting[0].names, (std::set<std::string>{"m/a"}));
  EXPECT_EQ(refreshed->waiting[0].why.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RowCounts(), (Counts{{"m/b", 20}}));
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}, {"m/b", 20}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

TEST_F(StagingTest, AWaitingImportIsReported) {
  Stage({"a"}, 10);
  FailCommits(1);
  EXPECT_EQ(ErrorOf(server_->Refresh()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StagedDirectories().size(), 1u);
}

TEST_F(StagingTest, AnImportThatWaitsIsReplacedByANewerOneOfItsTables) {
  Stage({"a"}, 10);
  {
    const FileLock lock = CommitLock();
    Stage({"a", "b"}, 20);
  }
  FailCommits(1);
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 20}, {"m/b", 20}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

// Catches: a waiting import that switches after the newer import that replaced it.
TEST_F(StagingTest, AReplacedImportIsNotCommittedIfTheProcessEndsBeforeItsRemoval) {
  Stage({"a"}, 10);
  FailCommits(1);
  FaultPoints::Arm(
      "l3.import.after_switch",
      {.action = FaultAction::kFail, .status = absl::AbortedError("planned: end"), .times = 1});
  EXPECT_EQ(ImportAsOwner({"a"}, 30).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(StagedDirectories().size(), 1u);
  server_.reset();
  OpenServer();
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

TEST_F(StagingTest, ANewerImportThatReplacesOnlyAPartWaitsBehindIt) {
  Stage({"a", "b"}, 10);
  Stage({"a"}, 20);
  FailCommits(3);
  EXPECT_EQ(ErrorOf(server_->Refresh()).code(), absl::StatusCode::kResourceExhausted);
  const absl::Status behind = ImportAsOwner({"b"}, 30);
  EXPECT_EQ(behind.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(behind.message()).find("'m/b'"), std::string::npos) << behind;
  EXPECT_TRUE(RowCounts().empty());
  EXPECT_EQ(StagedDirectories().size(), 2u);
  // Waiting imports are no error of an import of another table.
  const absl::Status beside = ImportAsOwner({"c"}, 40);
  EXPECT_TRUE(beside.ok()) << beside;
  EXPECT_EQ(RowCounts(), (Counts{{"m/c", 40}}));
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 20}, {"m/b", 10}, {"m/c", 40}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

// Catches: an import removed for a newer one that can never be committed.
TEST_F(StagingTest, ARejectedImportReplacesNothing) {
  Stage({"a"}, 10);
  {
    const FileLock lock = CommitLock();
    StageDamaged({"a"}, 20);
  }
  std::ofstream(StagedDirectories().at(0) + "/unknown") << "left alone until the end";
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}}));
  EXPECT_TRUE(StagedDirectories().empty());
  EXPECT_EQ(Rejected(), Tables{"m/a"});
  EXPECT_EQ(Rejected(), Tables{}) << "reported only once";
}

TEST_F(StagingTest, AReplacedTableIsNotReportedAsRejected) {
  StageDamaged({"a", "b"}, 10);
  Stage({"a"}, 20);
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(Rejected(), Tables{"m/b"});

  StageDamaged({"a", "b"}, 10);
  EXPECT_FALSE(server_->Refresh()->changed);
  ASSERT_TRUE(ImportAsOwner({"b"}, 30).ok());
  EXPECT_TRUE(server_->TakeRejectedImports("").empty()) << "rejected tables of another model";
  EXPECT_TRUE(server_->TakeRejectedImports("m/a").empty());
  EXPECT_EQ(Rejected(), Tables{"m/a"});
}

// Catches: a rejected import that is forgotten when an older, waiting import is committed.
TEST_F(StagingTest, AnOlderImportDoesNotReplaceARejectedOne) {
  Stage({"a"}, 10);
  {
    const FileLock lock = CommitLock();
    StageDamaged({"a", "b"}, 20);
  }
  FailCommits(1);
  EXPECT_EQ(ErrorOf(server_->Refresh()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}}));
  EXPECT_EQ(Rejected(), (Tables{"m/a", "m/b"}));
}

TEST_F(StagingTest, ADropReportsRejectedImportsOfOtherTables) {
  Stage({"a", "b"}, 10);
  EXPECT_TRUE(server_->Refresh()->changed);
  StageDamaged({"a"}, 20);
  StageDamaged({"b"}, 20);
  ASSERT_TRUE(server_->Drop("m/a").ok());
  EXPECT_EQ(Rejected(), Tables{"m/b"});
}

TEST_F(StagingTest, OpeningReportsRejectedImports) {
  StageDamaged({"a"}, 10);
  Stage({"b"}, 10);
  server_.reset();
  OpenServer();
  EXPECT_EQ(RowCounts(), (Counts{{"m/b", 10}}));
  EXPECT_EQ(Rejected(), Tables{"m/a"});
}

// Catches: an intact import that is rejected because the store is damaged.
TEST_F(StagingTest, ADamagedStoreRejectsNoStagedImport) {
  server_.reset();
  RocksStoreOptions server = Options();
  server.role = OwnerRole::kServer;
  server.config.cache_bytes = 0;  // no block read before the damage stays cached
  const auto database = Database::Open(server);
  ASSERT_TRUE(database.ok()) << database.status();
  // Every random incarnation is between these two, so it is looked up in the file that holds them.
  rocksdb::WriteBatch batch;
  PutUsed(batch, 1);
  PutUsed(batch, (Incarnation{1} << 52) - 1);
  ASSERT_TRUE((*database)->writer().Write(batch, true).ok());
  const auto imported = Fill(BeginStoreImport(*database, server, Specs({"a"})), 1, 10);
  ASSERT_TRUE(imported.ok()) << imported.status();
  Stage({"a"}, 20);
  rocksdb::ColumnFamilyMetaData catalog;
  (*database)->db().GetColumnFamilyMetaData(&catalog);
  for (const rocksdb::LevelMetaData& level : catalog.levels) {
    for (const rocksdb::SstFileMetaData& file : level.files)
      std::fstream(path() + file.name, std::ios::in | std::ios::out).seekp(20).put('\x55').flush();
  }

  // No import is staged for a store that cannot be read.
  EXPECT_EQ(Fill(StageImport(Options(), Specs({"a"})), 1, 30).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(StagedDirectories().size(), 1u);
  const absl::Status refreshed = ErrorOf(CommitReadyImports(**database));
  EXPECT_EQ(refreshed.code(), absl::StatusCode::kDataLoss) << refreshed;
  EXPECT_EQ(StagedDirectories().size(), 1u);
  MutexLock lock((*database)->change_mutex());
  EXPECT_TRUE((*database)->rejected_imports().Take("m").empty());
}

TEST_F(StagingTest, AnImportWhoseManifestIsDamagedIsRemoved) {
  Stage({"a"}, 10);
  std::filesystem::resize_file(StagedDirectories().at(0) + "/manifest", 40);
  EXPECT_FALSE(server_->Refresh()->changed);
  EXPECT_TRUE(StagedDirectories().empty());
  EXPECT_TRUE(RowCounts().empty());
  EXPECT_TRUE(ImportAsOwner({"a"}, 10).ok());
  EXPECT_EQ(Rejected(), Tables{""}) << "it may have been another table's";
}

// Catches: an import of a newer hps that is ignored, and a load that says nothing of it.
TEST_F(StagingTest, AnImportOfAnotherVersionIsReportedAndStops) {
  Stage({"a"}, 10);
  const std::string manifest = StagedDirectories().at(0) + "/manifest";
  std::ifstream file(manifest, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  bytes[8] = 99;  // the version follows the magic; the checksum ends the file
  const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size() - sizeof(checksum));
  std::memcpy(bytes.data() + bytes.size() - sizeof(checksum), &checksum, sizeof(checksum));
  std::ofstream(manifest, std::ios::binary) << bytes;
  const absl::Status refreshed = server_->Refresh().status();
  EXPECT_EQ(refreshed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(refreshed.message()).find("another version"), std::string::npos);
  EXPECT_EQ(std::string(refreshed.message()).find(path()), std::string::npos);
  EXPECT_TRUE(IsPublic(refreshed));
  // An import now would have no place in the order. It is refused before it has written its rows.
  EXPECT_EQ(StageImport(Options(), Specs({"b"})).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StagedDirectories().size(), 1u);
  std::filesystem::remove_all(StagedDirectories().at(0));
  EXPECT_TRUE(server_->Refresh().ok());
}

// Catches: an import by root that removes or reads what a link in the store's folder points to.
TEST_F(StagingTest, NothingBehindASymbolicLinkIsTouched) {
  Stage({"a"}, 10);
  const TestDirectory outside;
  const std::string kept = outside.Path("kept");
  std::filesystem::create_directory(kept);
  std::ofstream(kept + "/file") << "x";
  std::ofstream(kept + "/manifest") << "x";
  const std::string staging = std::filesystem::path(StagedDirectories().at(0)).parent_path();
  std::filesystem::create_directory_symlink(kept, staging + "/link");
  const std::string abandoned = staging + "/0123456789abcdef";
  std::filesystem::create_directory(abandoned);
  std::filesystem::create_directory_symlink(kept, abandoned + "/link");
  Stage({"b"}, 10);  // removes what ended imports have left
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_TRUE(std::filesystem::exists(kept + "/file"));
  EXPECT_TRUE(std::filesystem::exists(kept + "/manifest"));
  std::filesystem::remove(staging + "/link");
}

TEST_F(StagingTest, AnImportThatLacksAFileIsRejected) {
  Stage({"a"}, 10);
  Stage({"b"}, 10);
  std::filesystem::remove(StagedDirectories().at(0) + "/t0-p0.rows");
  EXPECT_TRUE(server_->Refresh()->changed);
  EXPECT_EQ(RowCounts().size(), 1u);
  EXPECT_TRUE(StagedDirectories().empty());
}

// Catches: a lock reported as free because the process has no free descriptor to check it.
TEST_F(StagingTest, ALockThatCannotBeCheckedIsNotFree) {
  ASSERT_TRUE(*FileLock::IsHeld(path() + "/hps.lock", 0));
  EXPECT_FALSE(*FileLock::IsHeld(path() + "/no.lock", 0));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status held = FileLock::IsHeld(path() + "/hps.lock", 0).status();
  const absl::Status server = OwnerLock::ServerHasStore(path()).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(held.code(), absl::StatusCode::kResourceExhausted) << held;
  EXPECT_EQ(server.code(), absl::StatusCode::kResourceExhausted) << server;
}

TEST_F(StagingTest, AnImportThatFailedIsNeverCommitted) {
  ASSERT_TRUE(ImportAsOwner({"a"}, 10).ok());
  const auto import = server_->BeginImport(Specs({"a"}));
  ASSERT_TRUE(import.ok()) << import.status();
  StampedRows rows(1, kDim * 4, {1, 2, 3});
  StampedRows disordered(1, kDim * 4, {7, 6});
  ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
  EXPECT_EQ((*import)->Add(0, 0, disordered.keys(), disordered.rows()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*import)->Commit().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}}));
}

// Catches: writers, with their memory and open files, that stay until the end of the import.
TEST_F(StagingTest, AFinishedPartHoldsNoFileOpen) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("t" + std::to_string(i));
  const auto import = server_->BeginImport(Specs(names));
  ASSERT_TRUE(import.ok()) << import.status();
  const auto before = open_files();
  for (size_t table = 0; table < names.size(); ++table) {
    StampedRows rows(1, kDim * 4, {1, 2, 3});
    ASSERT_TRUE((*import)->Add(table, 0, rows.keys(), rows.rows()).ok());
    ASSERT_TRUE((*import)->FinishPart(table, 0).ok());
    ASSERT_LE(open_files(), before);
  }
  ASSERT_TRUE((*import)->Commit().ok());
  EXPECT_EQ(RowCounts().size(), names.size());
  EXPECT_EQ(RowCounts()["m/t39"], 3u);
}

}  // namespace
}  // namespace hps
