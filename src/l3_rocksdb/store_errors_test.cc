// Provokes each error of opening, writing and importing.
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/public_message.h"
#include "l3_rocksdb/catalog_records.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/import_commit.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/test_disk.h"
#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"
#include "testing/faults/fault_points.h"
#include "testing/unprivileged.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 3;

// A disk whose free space the test sets.
class SpaceEnv final : public rocksdb::EnvWrapper {
 public:
  SpaceEnv() : rocksdb::EnvWrapper(rocksdb::Env::Default()) {}
  const char* Name() const override { return "SpaceEnv"; }
  rocksdb::Status GetFreeSpace(const std::string&, uint64_t* bytes) override {
    *bytes = full_count > 0 ? 0 : free_bytes.load();
    if (full_count > 0) --full_count;
    return rocksdb::Status::OK();
  }
  std::atomic<uint64_t> free_bytes{uint64_t{1} << 40};
  std::atomic<int> full_count{0};  // number of queries answered with no free space
};

class StoreErrorsTest : public testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/store"; }
  RocksStoreOptions Options(OpenMode mode = OpenMode::kCreate) const {
    RocksStoreOptions options = TestOptions(path());
    options.mode = mode;
    return options;
  }
  static absl::StatusCode OpenCode(const RocksStoreOptions& options) {
    return OpenRocksStore(options).status().code();
  }
  static TableSpec Spec(uint32_t dim = 8) {
    TableSpec spec;
    spec.name = "m/t";
    spec.dim = dim;
    return spec;
  }
  static absl::StatusOr<BulkImport::Result> Fill(absl::StatusOr<std::unique_ptr<BulkImport>> import,
                                                 Key count, uint32_t dim = 8) {
    return FillAll(std::move(import), 1, count, dim);
  }
  static absl::StatusOr<BulkImport::Result> FillAll(
      absl::StatusOr<std::unique_ptr<BulkImport>> import, size_t table_count, Key count,
      uint32_t dim = 8) {
    HPS_RETURN_IF_ERROR(import.status());
    std::vector<Key> keys;
    for (Key key = 0; key < count; ++key) keys.push_back(key);
    StampedRows rows(kStamp, dim * 4, keys);
    for (size_t table = 0; table < table_count; ++table)
      HPS_RETURN_IF_ERROR((*import)->Add(table, 0, rows.keys(), rows.rows()));
    return (*import)->Commit();
  }
  static absl::StatusOr<BulkImport::Result> Import(DurableStore& store, Key count) {
    const TableSpec spec = Spec();
    return Fill(store.BeginImport({&spec, 1}), count);
  }
  // Opens the store as a server, with ten rows in the table of Spec().
  static std::unique_ptr<DurableStore> OpenServer(RocksStoreOptions options) {
    options.role = OwnerRole::kServer;
    auto store = OpenRocksStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    if (!store.ok()) return nullptr;
    EXPECT_TRUE(Import(**store, 10).ok());
    return *std::move(store);
  }
  size_t StagedCount() const {
    const std::string staging = path() + "/staging";
    if (!std::filesystem::exists(staging)) return 0;
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(staging),
                                             std::filesystem::directory_iterator()));
  }

  size_t StagedFileCount() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path() + "/staging"))
      count += entry.path().extension() == ".rows" ? 1 : 0;
    return count;
  }

  TestDirectory directory_;
};

TEST_F(StoreErrorsTest, AMissingStoreIsNotFoundAndNotCreated) {
  EXPECT_EQ(OpenCode(Options(OpenMode::kReadWrite)), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenCode(Options(OpenMode::kReadOnly)), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// Catches: RocksDB's "not found" for such a directory reported as "is a file".
TEST_F(StoreErrorsTest, AnUnreadableDirectoryIsPermissionDenied) {
  using std::filesystem::perms;
  std::filesystem::create_directory(path());
  std::filesystem::permissions(path(), perms::none);
  {
    const Unprivileged nobody;
    for (const OpenMode mode : {OpenMode::kCreate, OpenMode::kReadWrite, OpenMode::kReadOnly})
      EXPECT_EQ(OpenCode(Options(mode)), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(VerifyRocksStore(Options(), true, {}).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  std::filesystem::permissions(path(), perms::all);
  EXPECT_EQ(OpenCode(Options()), absl::StatusCode::kOk);
}

TEST_F(StoreErrorsTest, ADirectoryOfOtherFilesIsLeftAlone) {
  std::ofstream(path()) << "a file";
  EXPECT_EQ(OpenCode(Options()), absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  std::ofstream(path() + "/notes.txt") << "something else";
  EXPECT_EQ(OpenCode(Options()), absl::StatusCode::kFailedPrecondition);
  // Catches: any log file taken for a part of a store, so that `verify` reported damage in it.
  std::ofstream(path() + "/build.log") << "no store's log";
  EXPECT_EQ(OpenCode(Options()), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(VerifyRocksStore(Options(), true, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::ofstream(path() + "/000012.sst") << "rows of a store";
  EXPECT_EQ(OpenCode(Options()), absl::StatusCode::kDataLoss);
}

// RocksDB never removes the temporary file of a killed writer.
TEST_F(StoreErrorsTest, ATemporaryFileOfAKilledWriterIsRemovedByTheNextOne) {
  ASSERT_TRUE(OpenRocksStore(Options()).ok());
  const std::string left = path() + "/OPTIONS-000005.dbtmp";
  std::ofstream(left) << "half of";
  ASSERT_TRUE(OpenRocksStore(Options(OpenMode::kReadOnly)).ok());
  EXPECT_TRUE(std::filesystem::exists(left)) << "a reader changes nothing";
  ASSERT_TRUE(OpenRocksStore(Options(OpenMode::kReadWrite)).ok());
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(StoreErrorsTest, AFullDiskRefusesWritesAndImportsUntilThereIsSpace) {
  SpaceEnv env;
  RocksStoreOptions options = Options();
  options.env = &env;
  options.config.free_bytes_min = 1 << 20;
  env.free_bytes = 1 << 10;
  EXPECT_EQ(OpenCode(options), absl::StatusCode::kResourceExhausted);
  env.free_bytes = uint64_t{1} << 30;
  auto store = OpenRocksStore(options);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(Import(**store, 10).ok());
  auto table = (*store)->OpenTable("m/t");
  StampedRows rows(kStamp, 32, {3}, 1);
  env.free_bytes = 1 << 10;
  const absl::Status refused = (*table)->Write({rows.batch(), {}, {}});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsDiskFull(refused));
  EXPECT_NE(std::string(refused.message()).find("1024 bytes free; a write of "), std::string::npos)
      << refused;
  const absl::Status import = Import(**store, 10).status();
  EXPECT_EQ(import.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(import.message(),
            absl::StrCat("store '", options.config.path,
                         "': the disk is full: it has 1024 bytes "
                         "free; a write must leave 1048576 bytes free ([store] free_bytes_min)"));
  EXPECT_TRUE(IsDiskFull((*store)->Snapshot("s").status()));
  const FetchedRows reads_go_on(**table, {3});
  EXPECT_EQ(reads_go_on.versions[0], 0u);
  EXPECT_EQ(reads_go_on.counts->hits, 1u);
  env.free_bytes = uint64_t{1} << 30;
  EXPECT_TRUE((*table)->Write({rows.batch(), {}, {}}).ok());
  EXPECT_TRUE(Import(**store, 10).ok());
  // Dropping a table frees space.
  env.free_bytes = 0;
  EXPECT_TRUE((*store)->Drop("m/t").ok());
}

TEST_F(StoreErrorsTest, APartitionBeyondTheLimitIsRefused) {
  auto store = OpenRocksStore(Options());
  ASSERT_TRUE(Import(**store, 1).ok());
  auto table = (*store)->OpenTable("m/t");
  const std::vector<StreamPosition> positions = {{kPositionsMax, 1, 0}};
  EXPECT_EQ((*table)->Write({{}, {}, positions}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StoreErrorsTest, EachRocksStatusHasItsCode) {
  using Rocks = rocksdb::Status;
  const auto code = [](const Rocks& status) { return FromRocksStatus(status, "x").code(); };
  EXPECT_EQ(code(Rocks::OK()), absl::StatusCode::kOk);
  EXPECT_EQ(code(Rocks::NoSpace()), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsDiskFull(FromRocksStatus(Rocks::NoSpace(), "x")));
  EXPECT_FALSE(IsDiskFull(FromRocksStatus(Rocks::MemoryLimit(), "x")));
  EXPECT_EQ(code(Rocks::MemoryLimit()), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(Rocks::Corruption("")), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(Rocks::IOError("")), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(Rocks::Busy()), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(Rocks::TimedOut()), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code(Rocks::NotFound()), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(Rocks::NotSupported("")), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(Rocks::ColumnFamilyDropped()), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(Rocks::InvalidArgument("")), absl::StatusCode::kInternal);
  const auto failed = [](int error_number) {
    return Rocks::IOError("While appending to file: s/1.log", std::strerror(error_number));
  };
  for (const int error_number : {ENOSPC, EDQUOT, EFBIG, ENOMEM, EMFILE, ENFILE})
    EXPECT_EQ(code(failed(error_number)), absl::StatusCode::kResourceExhausted) << error_number;
  for (const int error_number : {EACCES, EPERM, EROFS})
    EXPECT_EQ(code(failed(error_number)), absl::StatusCode::kPermissionDenied) << error_number;
  for (const int error_number : {EIO, ENODEV, ETIMEDOUT})
    EXPECT_EQ(code(failed(error_number)), absl::StatusCode::kUnavailable) << error_number;
}

// Makes each file of a store unreadable in turn. Errors are those of RocksDB's own file system.
TEST_F(StoreErrorsTest, AnUnreadableFileIsNamed) {
  ASSERT_TRUE(Import(**OpenRocksStore(Options()), 50).ok());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path()))
    std::filesystem::permissions(entry.path(), std::filesystem::perms(0777));
  for (const std::string& directory : {directory_.path(), path()})
    std::filesystem::permissions(directory, std::filesystem::perms(0777));
  std::error_code error;
  {
    const Unprivileged nobody;
    static_cast<void>(std::filesystem::directory_iterator(path(), error));
  }
  if (error) GTEST_SKIP() << "the directory for tests is closed to others: " << error.message();
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path())) {
    const std::string name = entry.path().filename();
    if (!entry.path().has_extension() && !name.starts_with("MANIFEST") && name != "CURRENT")
      continue;
    if (entry.file_size() == 0 || name == "hps.reserve") continue;
    SCOPED_TRACE(name);
    std::filesystem::permissions(entry.path(), std::filesystem::perms(0));
    absl::Status opened;
    {
      const Unprivileged nobody;
      const auto store = OpenRocksStore(Options(OpenMode::kReadOnly));
      opened = store.status();
      if (store.ok()) opened = FetchedRows(**(*store)->OpenTable("m/t"), {1, 2, 3}).counts.status();
    }
    std::filesystem::permissions(entry.path(), std::filesystem::perms(0777));
    if (opened.ok()) continue;  // opening does not need this file
    ++files;
    EXPECT_EQ(opened.code(), absl::StatusCode::kPermissionDenied) << opened;
    EXPECT_NE(opened.message().find(name), std::string::npos) << opened;
  }
  EXPECT_GE(files, 3u);
}

TEST_F(StoreErrorsTest, AnImportCreatesAMissingStore) {
  const TableSpec spec = Spec();
  const auto result = Fill(StageImport(Options(), {&spec, 1}), 50);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->staged);
  EXPECT_EQ(StagedCount(), 0u);
  auto store = OpenRocksStore(Options(OpenMode::kReadWrite));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Tables()->at(0).row_count, 50u);
}

TEST_F(StoreErrorsTest, AnImportWaitsForTheRefreshOfTheServer) {
  const auto store = OpenServer(Options());
  ASSERT_NE(store, nullptr);
  const TableSpec spec = Spec();
  const TableSpec other_shape = Spec(4);
  EXPECT_EQ(StageImport(Options(), {&other_shape, 1}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  for (const Key count : {20, 30}) {
    const auto result = Fill(StageImport(Options(), {&spec, 1}), count);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->staged);
  }
  EXPECT_EQ(store->Tables()->at(0).row_count, 10u);
  EXPECT_TRUE(store->Refresh()->changed);
  EXPECT_EQ(store->Tables()->at(0).row_count, 30u);  // the newer import
  EXPECT_EQ(StagedCount(), 0u);
  EXPECT_FALSE(store->Refresh()->changed);
}

// Catches: a table that reappears after a drop.
TEST_F(StoreErrorsTest, ADropCommitsWhatWasStagedBeforeIt) {
  const auto store = OpenServer(Options());
  ASSERT_NE(store, nullptr);
  const TableSpec spec = Spec();
  TableSpec other = Spec();
  other.name = "m/other";
  ASSERT_TRUE(Fill(StageImport(Options(), {&spec, 1}), 20)->staged);
  ASSERT_TRUE(Fill(StageImport(Options(), {&other, 1}), 30)->staged);
  ASSERT_TRUE(store->Drop("m/t").ok());
  EXPECT_EQ(StagedCount(), 0u);
  EXPECT_FALSE(store->Refresh()->changed);
  ASSERT_EQ(store->Tables()->size(), 1u);
  EXPECT_EQ(store->Tables()->at(0).spec.name, "m/other");
  // A table that is only staged can be dropped too.
  ASSERT_TRUE(Fill(StageImport(Options(), {&spec, 1}), 20)->staged);
  EXPECT_TRUE(store->Drop("m/t").ok());
  EXPECT_EQ(store->Drop("m/t").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Tables()->size(), 1u);
}

// A waiting import loses the dropped table, or is removed if it has no other: a drop frees space
// even while imports wait for space.
TEST_F(StoreErrorsTest, ADropRemovesTheTableFromWaitingImports) {
  SpaceEnv env;
  RocksStoreOptions server = Options();
  server.env = &env;
  server.config.free_bytes_min = 1 << 20;
  const auto store = OpenServer(server);
  ASSERT_NE(store, nullptr);
  std::vector<TableSpec> specs = {Spec(), Spec()};
  specs[1].name = "m/u";
  ASSERT_TRUE(FillAll(StageImport(Options(), specs), 2, 20)->staged);
  const size_t file_count = StagedFileCount();
  env.full_count = 1;  // affects the commit, not the drop
  const absl::Status dropped = store->Drop("m/t");
  EXPECT_TRUE(dropped.ok()) << dropped;
  EXPECT_TRUE(store->Tables()->empty());
  EXPECT_EQ(StagedCount(), 1u);
  EXPECT_LT(StagedFileCount(), file_count);
  EXPECT_TRUE(store->Refresh()->changed);
  ASSERT_EQ(store->Tables()->size(), 1u);
  EXPECT_EQ(store->Tables()->at(0).spec.name, "m/u");
  EXPECT_EQ(store->Tables()->at(0).row_count, 20u);

  ASSERT_TRUE(Fill(StageImport(Options(), {specs.data(), 1}), 30)->staged);
  env.full_count = 1;
  EXPECT_TRUE(store->Drop("m/t").ok());  // the table is only staged
  EXPECT_EQ(env.full_count, 0);
  EXPECT_EQ(StagedCount(), 0u);
  EXPECT_FALSE(store->Refresh()->changed);
  ASSERT_EQ(store->Tables()->size(), 1u);
  EXPECT_EQ(store->Tables()->at(0).spec.name, "m/u");
}

// Catches: a drop that reports success although a staged import still contains the table.
TEST_F(StoreErrorsTest, ADropReportsThatItCannotChangeAStagedImport) {
  const auto disk = std::make_shared<TestDisk>();
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(disk);
  RocksStoreOptions server = Options();
  server.env = env.get();
  const auto store = OpenServer(server);
  ASSERT_NE(store, nullptr);
  std::vector<TableSpec> specs = {Spec(), Spec()};
  specs[1].name = "m/u";
  ASSERT_TRUE(FillAll(StageImport(Options(), specs), 2, 20)->staged);
  const auto fail_commit = [] {
    FaultPoints::Arm("l3.import.before_families",
                     {.action = FaultAction::kFail,
                      .status = absl::ResourceExhaustedError("planned: no space"),
                      .times = 1});
  };
  disk->fails_only = "/manifest.tmp";
  disk->fails_appends = true;
  fail_commit();
  const absl::Status dropped = store->Drop("m/t");
  EXPECT_EQ(dropped.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(dropped.message().find("drop it again"), absl::string_view::npos) << dropped;
  disk->fails_appends = false;
  fail_commit();
  EXPECT_TRUE(store->Drop("m/t").ok());
  FaultPoints::DisarmAll();
  EXPECT_TRUE(store->Refresh()->changed);
  ASSERT_EQ(store->Tables()->size(), 1u);
  EXPECT_EQ(store->Tables()->at(0).spec.name, "m/u");
}

TEST_F(StoreErrorsTest, AStagedImportThatNoLongerFitsIsRejected) {
  RocksStoreOptions server = Options();
  server.role = OwnerRole::kServer;
  auto store = OpenRocksStore(server);
  const TableSpec spec = Spec();
  const TableSpec other_shape = Spec(4);
  ASSERT_TRUE(Fill(StageImport(Options(), {&spec, 1}), 10)->staged);
  ASSERT_TRUE(Fill(StageImport(Options(), {&other_shape, 1}), 5, 4)->staged);
  EXPECT_TRUE((*store)->Refresh()->changed);
  EXPECT_EQ((*store)->Tables()->at(0).spec.dim, 8u);
  EXPECT_EQ((*store)->Tables()->at(0).row_count, 10u);
  EXPECT_EQ(StagedCount(), 0u);
}

TEST_F(StoreErrorsTest, AnIncarnationIsNeverUsedTwice) {
  RocksStoreOptions server = Options();
  server.role = OwnerRole::kServer;
  auto store = OpenRocksStore(server);
  const TableSpec spec = Spec();
  ASSERT_TRUE(Fill(StageImport(Options(), {&spec, 1}), 20)->staged);
  const std::string copy = directory_.path() + "/copy";
  std::filesystem::copy(path() + "/staging", copy, std::filesystem::copy_options::recursive);
  EXPECT_TRUE((*store)->Refresh()->changed);
  const Incarnation committed = (*store)->Tables()->at(0).incarnation;
  ASSERT_TRUE(Import(**store, 10).ok());
  // The state after a crash between the switch and the removal.
  std::filesystem::copy(copy, path() + "/staging", std::filesystem::copy_options::recursive);
  EXPECT_FALSE((*store)->Refresh()->changed);
  EXPECT_NE((*store)->Tables()->at(0).incarnation, committed);
  EXPECT_EQ(StagedCount(), 0u);
}

// Two processes: the child holds the store like a server and is killed.
TEST_F(StoreErrorsTest, AKilledServerOwnsNothing) {
  ASSERT_TRUE(Fill(StageImport(Options(), std::vector<TableSpec>{Spec()}), 10).ok());
  int held[2];
  ASSERT_EQ(pipe(held), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = OwnerLock::Take(path(), OwnerRole::kServer, RealClock().Now());
    const char ok = lock.ok() ? 'y' : 'n';
    if (write(held[1], &ok, 1) == 1) pause();
    _exit(1);
  }
  char ok = 0;
  ASSERT_EQ(read(held[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  EXPECT_EQ(OpenCode(Options(OpenMode::kReadWrite)), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(OpenRocksStore(Options(OpenMode::kReadOnly)).ok());
  const TableSpec spec = Spec();
  const auto staged = Fill(StageImport(Options(), {&spec, 1}), 20);
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_TRUE(staged->staged);

  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(held[0]);
  close(held[1]);
  auto store = OpenRocksStore(Options(OpenMode::kReadWrite));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Tables()->at(0).row_count, 20u);
}

// The wait for another command is limited.
TEST_F(StoreErrorsTest, AnImportDuringAnotherCommandIsUnavailable) {
  auto store = OpenRocksStore(Options());
  ASSERT_TRUE(Import(**store, 10).ok());
  const TableSpec spec = Spec();
  RocksStoreOptions patient = Options();
  patient.lock_timeout = std::chrono::milliseconds(30);
  EXPECT_EQ(Fill(StageImport(patient, {&spec, 1}), 20).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(StagedCount(), 0u);
  EXPECT_EQ((*store)->Tables()->at(0).row_count, 10u);
}

// All are in one record. Catches: a write that has read it before the drop and commits after it
// takes the model back to its former version.
TEST_F(StoreErrorsTest, WhatAStreamAddsAndADropOfAnotherTableAreBothKept) {
  const std::vector<uint16_t> hashes = {3, 4};
  TableSpec other = Spec();
  other.name = "m/other";
  {
    auto store = OpenRocksStore(Options());
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(Import(**store, 10).ok());
    ASSERT_TRUE(Fill((*store)->BeginImport({&other, 1}), 10).ok());
    FaultPoints::Arm("l3.write.before_commit", {.action = FaultAction::kWait});
    std::thread writer([&] {
      DurableWrite write;
      write.records_lost = 7;
      write.unordered_hashes = hashes;
      EXPECT_TRUE((*(*store)->OpenTable("m/t"))->Write(write).ok());
    });
    EXPECT_TRUE(AwaitCondition([] { return FaultPoints::IsWaiting("l3.write.before_commit"); }));
    EXPECT_TRUE((*store)->Drop("m/other").ok());
    FaultPoints::DisarmAll();
    writer.join();
  }
  auto store = OpenRocksStore(Options(OpenMode::kReadWrite));
  ASSERT_TRUE(store.ok()) << store.status();
  const TableInfo table = (*store)->Tables()->at(0);
  EXPECT_EQ(table.update_records_lost, 7u);
  EXPECT_EQ((*(*store)->OpenTable("m/t"))->UnorderedHashes(), hashes);
  EXPECT_EQ(table.model_version, 3u);
}

// The failed write is seen, so its hashes must stay when the next write replaces the record.
TEST_F(StoreErrorsTest, HashesOfAWriteThatFailedStay) {
  const auto disk = std::make_shared<TestDisk>();
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(disk);
  RocksStoreOptions options = Options();
  options.env = env.get();
  const std::vector<uint16_t> first = {3};
  const std::vector<uint16_t> second = {4};
  {
    auto store = OpenRocksStore(options);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(Import(**store, 10).ok());
    const auto table = *(*store)->OpenTable("m/t");
    disk->fails_only = ".log";
    disk->fails_appends = true;
    EXPECT_FALSE(table->Write({.unordered_hashes = first}).ok());
    disk->fails_appends = false;
    EXPECT_TRUE(table->Write({.unordered_hashes = second}).ok());
  }
  const auto store = OpenRocksStore(Options(OpenMode::kReadWrite));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*(*store)->OpenTable("m/t"))->UnorderedHashes(), (std::vector<uint16_t>{3, 4}));
}

TEST_F(StoreErrorsTest, StagingOfAnEndedCommandIsRemovedByTheNextWriter) {
  ASSERT_TRUE(OpenRocksStore(Options()).ok());
  std::filesystem::create_directories(path() + "/staging/0123456789abcdef");
  std::ofstream(path() + "/staging/0123456789abcdef/t0-p0.rows") << "half a file";
  ASSERT_TRUE(OpenRocksStore(Options(OpenMode::kReadWrite)).ok());
  EXPECT_EQ(StagedCount(), 0u);
}

}  // namespace
}  // namespace hps
