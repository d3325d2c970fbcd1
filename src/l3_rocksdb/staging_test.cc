// Imports that wait for the store's owner: their order, what becomes of those that can't be taken,
// and what the makers of others notice of it.
#include "l3_rocksdb/staging.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/fault_point.h"
#include "base/log.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr uint32_t kDim = 4;

class StagingTest : public testing::Test {
 protected:
  StagingTest() {
    SetLogLevel(LogLevel::kOff);
    RocksStoreOptions server = Options();
    server.role = OwnerRole::kServer;
    auto opened = OpenRocksStore(server);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) server_ = *std::move(opened);
  }
  ~StagingTest() override {
    FaultPoints::DisarmAll();
    SetLogLevel(LogLevel::kWarning);
  }

  std::string path() const { return directory_.path() + "/store"; }
  RocksStoreOptions Options() const { return TestOptions(path()); }

  static std::vector<TableSpec> Specs(const std::vector<std::string>& names) {
    std::vector<TableSpec> specs;
    for (const std::string& name : names) specs.push_back({.name = "m/" + name, .dim = kDim});
    return specs;
  }
  // Gives each table `row_count` rows and commits.
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
  std::map<std::string, uint64_t> RowCounts() const {
    std::map<std::string, uint64_t> counts;
    const auto tables = server_->Tables();
    EXPECT_TRUE(tables.ok()) << tables.status();
    for (const TableInfo& table : *tables) counts[table.spec.name] = table.row_count;
    return counts;
  }
  std::vector<std::string> StagedDirectories() const {
    std::vector<std::string> directories;
    for (const auto& entry : std::filesystem::directory_iterator(path() + "/staging"))
      directories.push_back(entry.path());
    return directories;
  }
  // The next `times` commits find the disk full.
  static void FailCommits(uint64_t times) {
    FaultPoints::Arm("l3.import.before_families",
                     {.action = FaultAction::kFail,
                      .status = absl::ResourceExhaustedError("planned: no space"),
                      .times = times});
  }

  using Counts = std::map<std::string, uint64_t>;
  TestDirectory directory_;
  std::unique_ptr<DurableStore> server_;
};

// Catches: an older staged import that switches over a newer one of the owner's own.
TEST_F(StagingTest, TheOwnersImportComesAfterWhatWasStagedBefore) {
  Stage({"a", "b"}, 20);
  ASSERT_TRUE(ImportAsOwner({"a"}, 30).ok());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}, {"m/b", 20}}));
  EXPECT_TRUE(StagedDirectories().empty());
  EXPECT_FALSE(*server_->Refresh());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 30}, {"m/b", 20}}));
}

TEST_F(StagingTest, WhoDoesNotOwnTheStoreSeesWhatWaits) {
  EXPECT_TRUE(ListWaitingImports(Options())->empty());
  Stage({"a", "b"}, 20);
  Stage({"a"}, 30);
  const auto unfinished = StageImport(Options(), Specs({"c"}));
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  const auto waiting = ListWaitingImports(Options());
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  ASSERT_EQ(waiting->size(), 2u) << "what is in the making does not wait";
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
  ASSERT_TRUE(*server_->Refresh());
  EXPECT_TRUE(ListWaitingImports(Options())->empty());
  RocksStoreOptions elsewhere = Options();
  elsewhere.config.path = directory_.path() + "/none";
  EXPECT_TRUE(ListWaitingImports(elsewhere)->empty());
}

// Catches: remains that only the owner of the store removes, beside a server or at the end of an
// import: imports that were killed kept the room that the next one needed to come to its end.
TEST_F(StagingTest, ANewImportRemovesWhatEndedOnesHaveLeft) {
  Stage({"a"}, 20);
  const auto unfinished = StageImport(Options(), Specs({"b"}));
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  const std::string remains = path() + "/staging/0123456789abcdef";
  std::filesystem::create_directory(remains);
  std::ofstream(remains + "/lock").close();
  std::ofstream(remains + "/t0-p0-0.sst") << "rows";
  std::filesystem::create_directory(path() + "/staging/0123456789abcdee");  // not even a lock
  const auto next = StageImport(Options(), Specs({"c"}));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(std::filesystem::exists(remains));
  EXPECT_EQ(StagedDirectories().size(), 3u) << "what is ready or in the making stays";
  EXPECT_EQ(ListWaitingImports(Options())->size(), 1u);
}

TEST_F(StagingTest, AWaitingImportThatCannotBeReadIsListedWithTheReason) {
  Stage({"a"}, 10);
  std::filesystem::resize_file(StagedDirectories().at(0) + "/manifest", 40);
  Stage({"b"}, 10);
  const auto waiting = ListWaitingImports(Options());
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  ASSERT_EQ(waiting->size(), 2u);
  EXPECT_EQ((*waiting)[0].tables.at(0).spec.name, "m/b");
  EXPECT_TRUE((*waiting)[1].tables.empty());
  EXPECT_NE((*waiting)[1].problem.find("DATA_LOSS"), std::string::npos) << (*waiting)[1].problem;
  EXPECT_EQ(StagedDirectories().size(), 2u) << "a look changes nothing";
}

TEST_F(StagingTest, AnImportThatHasToWaitKeepsNoOtherBack) {
  Stage({"a"}, 10);
  Stage({"b"}, 20);
  FailCommits(1);
  const auto changed = server_->Refresh();
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(*changed);
  EXPECT_EQ(RowCounts(), (Counts{{"m/b", 20}}));
  EXPECT_TRUE(*server_->Refresh());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}, {"m/b", 20}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

TEST_F(StagingTest, WhatMustWaitIsAnErrorWhenNothingElseHasChanged) {
  Stage({"a"}, 10);
  FailCommits(1);
  EXPECT_EQ(server_->Refresh().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StagedDirectories().size(), 1u);
}

TEST_F(StagingTest, AnImportThatWaitsIsReplacedByANewerOneOfItsTables) {
  Stage({"a"}, 10);
  Stage({"a", "b"}, 20);
  FailCommits(1);
  EXPECT_TRUE(*server_->Refresh());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 20}, {"m/b", 20}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

TEST_F(StagingTest, ANewerImportThatReplacesOnlyAPartWaitsBehindIt) {
  Stage({"a", "b"}, 10);
  Stage({"a"}, 20);
  FailCommits(3);
  EXPECT_EQ(server_->Refresh().status().code(), absl::StatusCode::kResourceExhausted);
  const absl::Status behind = ImportAsOwner({"b"}, 30);
  EXPECT_EQ(behind.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(behind.message()).find("'m/b'"), std::string::npos) << behind;
  EXPECT_TRUE(RowCounts().empty());
  EXPECT_EQ(StagedDirectories().size(), 2u);
  // What others have staged is no error of an import of another table.
  const absl::Status beside = ImportAsOwner({"c"}, 40);
  EXPECT_TRUE(beside.ok()) << beside;
  EXPECT_EQ(RowCounts(), (Counts{{"m/c", 40}}));
  EXPECT_TRUE(*server_->Refresh());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 20}, {"m/b", 10}, {"m/c", 40}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

// Catches: an import that was dropped for a newer one that then could not be committed.
TEST_F(StagingTest, ANewerImportThatIsGivenUpReplacesNothing) {
  Stage({"a"}, 10);
  Stage({"a"}, 20);
  std::ofstream(StagedDirectories().at(0) + "/unknown") << "left alone until the end";
  // The newer one's rows rot.
  std::string newer;
  for (const std::string& directory : StagedDirectories()) {
    const std::string file = directory + "/t0-p0-0.sst";
    if (newer.empty() ||
        std::filesystem::last_write_time(file) > std::filesystem::last_write_time(newer)) {
      newer = file;
    }
  }
  std::fstream stream(newer, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(100).put('\x55').put('\x55').put('\x55');
  stream.close();
  EXPECT_TRUE(*server_->Refresh());
  EXPECT_EQ(RowCounts(), (Counts{{"m/a", 10}}));
  EXPECT_TRUE(StagedDirectories().empty());
}

TEST_F(StagingTest, AnImportWhoseManifestIsDamagedIsRemoved) {
  Stage({"a"}, 10);
  std::filesystem::resize_file(StagedDirectories().at(0) + "/manifest", 40);
  EXPECT_FALSE(*server_->Refresh());
  EXPECT_TRUE(StagedDirectories().empty());
  EXPECT_TRUE(RowCounts().empty());
}

TEST_F(StagingTest, AnImportThatLacksAFileIsGivenUp) {
  Stage({"a"}, 10);
  Stage({"b"}, 10);
  std::filesystem::remove(StagedDirectories().at(0) + "/t0-p0-0.sst");
  EXPECT_TRUE(*server_->Refresh());
  EXPECT_EQ(RowCounts().size(), 1u);
  EXPECT_TRUE(StagedDirectories().empty());
}

// Catches: a lock that is told free because the process has no descriptor left to ask.
TEST_F(StagingTest, ALockThatCannotBeAskedIsNotFree) {
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

TEST_F(StagingTest, WhatFailedInTheMiddleIsNeverCommitted) {
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
