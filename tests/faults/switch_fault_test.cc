// Changes of tables on a disk that fails: a switch leaves the new tables current or nothing of
// them, in the same process, once the disk works and tables change again. And on a full one, where
// dropping a table must work, since it is how room is made.
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/one_table.h"
#include "tests/faults/store_run.h"
#include "types/names.h"

namespace hps {
namespace {

constexpr uint64_t kOldRows = 100;
constexpr uint64_t kNewRows = 200;

// The column families of tables and networks that the database at `path` has. Tries again when a
// flush has put another MANIFEST in place of the one that was read.
std::set<std::string> FamiliesIn(const std::string& path) {
  std::vector<std::string> names;
  rocksdb::Status listed;
  for (int i = 0; i < 10; ++i) {
    listed = rocksdb::DB::ListColumnFamilies({}, path, &names);
    if (listed.ok()) break;
  }
  EXPECT_TRUE(listed.ok()) << listed.ToString();
  std::set<std::string> families(names.begin(), names.end());
  families.erase(rocksdb::kDefaultColumnFamilyName);
  return families;
}

class SwitchFaultTest : public FailingDiskTest {
 protected:
  // Both with a network of the model, whose bytes are another number of characters.
  absl::Status Import(uint64_t row_count) {
    const TableSpec spec = OneTable();
    return FillOneTable(WithNetwork(store_->BeginImport({&spec, 1}), row_count), row_count)
        .status();
  }
  // As a command beside the server, on the machine's own disk.
  absl::Status Stage(uint64_t row_count) {
    const TableSpec spec = OneTable();
    RocksStoreOptions options = TestStoreOptions(directory_.path("store"));
    return FillOneTable(WithNetwork(StageImport(options, {&spec, 1}), row_count), row_count)
        .status();
  }
  static absl::StatusOr<std::unique_ptr<BulkImport>> WithNetwork(
      absl::StatusOr<std::unique_ptr<BulkImport>> import, uint64_t bytes) {
    if (!import.ok()) return import;
    ModelNetwork network{.onnx = std::string(bytes, 'x')};
    network.digest = NetworkDigest(network);
    const absl::Status set = (*import)->SetNetwork(ModelOf(OneTable().name), network);
    return set.ok() ? std::move(import) : absl::StatusOr<std::unique_ptr<BulkImport>>(set);
  }
  void OpenServer() {
    store_.reset();
    Clean();
    Reopen();
    const absl::Status imported = Import(kOldRows);
    ASSERT_TRUE(imported.ok()) << imported;
  }
  void Reopen() {
    store_.reset();
    RocksStoreOptions options = Options(SyncMode::kNever);
    options.role = OwnerRole::kServer;
    auto opened = OpenRocksStore(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  // Of the table; the network is that of the same import.
  uint64_t RowCount() const {
    const uint64_t count = store_->Tables()->at(0).row_count;
    const auto network = store_->Network(ModelOf(OneTable().name));
    EXPECT_TRUE(network.ok()) << network.status();
    EXPECT_EQ(network.ok() ? (*network)->onnx.size() : 0, count);
    return count;
  }
  // What the database has.
  std::set<std::string> Families() const { return FamiliesIn(directory_.path("store")); }
  // Those of its tables.
  std::set<std::string> TableFamilies() const {
    std::set<std::string> families;
    const std::vector<TableInfo> tables = *store_->Tables();
    for (const TableInfo& table : tables) families.insert(FamilyName(FamilyId{table.incarnation}));
    return families;
  }
  // Those of its tables, and one of a network.
  void ExpectCurrentFamilies() const {
    std::set<std::string> families = Families();
    EXPECT_EQ(std::erase_if(families,
                            [](const std::string& name) { return name.starts_with("network-"); }),
              1U);
    EXPECT_EQ(families, TableFamilies());
    EXPECT_EQ(PageFiles(), CurrentPageFiles());
  }
  // Those that there are.
  std::set<std::string> PageFiles() const {
    std::set<std::string> files;
    for (const auto& entry :
         std::filesystem::directory_iterator(PagesDirectory(directory_.path("store"))))
      files.insert(entry.path().string());
    return files;
  }
  // Those that its tables need: each was imported in one part.
  std::set<std::string> CurrentPageFiles() const {
    std::set<std::string> files;
    const std::vector<TableInfo> tables = *store_->Tables();
    for (const TableInfo& table : tables)
      files.insert(PageFilePath(directory_.path("store"), table.incarnation, 0));
    return files;
  }

  std::unique_ptr<DurableStore> store_;
};

// Background work that had begun on the failing disk may report its error only now.
template <typename Attempt>
absl::Status TryAgain(Attempt attempt) {
  absl::Status status = attempt();
  for (int late_errors = 0; absl::IsUnavailable(status) && late_errors < 3; ++late_errors)
    status = attempt();
  return status;
}

// A plan for every call of the kinds in `calls` that the switch of an import makes.
std::vector<FileFaultPlan> PlansFor(uint64_t call_count, const rocksdb::IOStatus& status) {
  std::vector<FileFaultPlan> plans;
  const uint64_t trials = Trials(call_count);
  for (uint64_t trial = 0; trial < trials; ++trial) {
    for (const bool sticky : {false, true}) {
      plans.push_back({.nth = trial * call_count / trials,
                       .sticky = sticky,
                       .calls = kFileCreate | kFileAppend | kFileSync | kFileChange,
                       .status = status});
    }
  }
  return plans;
}

// Catches: a staged import whose commit has failed and can't be tried again before the next open,
// because its column family is there already; and files of it that stay until then.
TEST_F(SwitchFaultTest, AStagedImportCanBeCommittedOnceTheDiskWorks) {
  OpenServer();
  ASSERT_TRUE(Stage(kNewRows).ok());
  disk_->Fail({.nth = UINT64_MAX, .calls = kFileCreate | kFileAppend | kFileSync | kFileChange});
  ASSERT_TRUE(ErrorOf(store_->Refresh()).ok());
  const uint64_t call_count = disk_->matching_calls();
  uint64_t failed = 0;
  for (const FileFaultPlan& plan :
       PlansFor(call_count, rocksdb::IOStatus::IOError("a planned fault"))) {
    SCOPED_TRACE(absl::StrCat("call ", plan.nth, plan.sticky ? " and all later" : ""));
    OpenServer();
    ASSERT_TRUE(Stage(kNewRows).ok());
    disk_->Fail(plan);
    const absl::Status refreshed = ErrorOf(store_->Refresh());
    failed += !refreshed.ok();
    disk_->Heal();
    const absl::Status again = TryAgain([&] { return ErrorOf(store_->Refresh()); });
    ASSERT_TRUE(again.ok()) << again << ", after " << refreshed;
    EXPECT_EQ(RowCount(), kNewRows);
    // What a failed removal has left goes with the next change of tables.
    const absl::Status imported = TryAgain([&] { return Import(kOldRows); });
    ASSERT_TRUE(imported.ok()) << imported;
    ExpectCurrentFamilies();
    Reopen();
    EXPECT_EQ(RowCount(), kOldRows);
    ExpectCurrentFamilies();
  }
  std::printf("%llu calls, %llu switches failed\n", static_cast<unsigned long long>(call_count),
              static_cast<unsigned long long>(failed));
  EXPECT_GT(failed, Trials(call_count) / 4);
}

// Where the disk was when the drop begins.
enum class Before { kWell, kManifestFailed, kFlushFailed };

class FullDiskDropTest : public FailingDiskTest {
 protected:
  static constexpr EventPlan kPlan = {.seed = 10, .import_every = 20};
  RocksStoreOptions Options() const { return FailingDiskTest::Options(SyncMode::kNever); }
  // The column family of the current incarnation of a table, its files, and the table's page files.
  struct Rows {
    std::string family;
    std::set<std::string> files;
  };
  // As a reader of the store sees them.
  Rows RowsOf(const char* name) const {
    RocksStoreOptions options = TestStoreOptions(directory_.path("store"));
    options.mode = OpenMode::kReadOnly;
    const auto database = Database::Open(options);
    EXPECT_TRUE(database.ok()) << database.status();
    Rows rows;
    if (!database.ok()) return rows;
    const TableRecord table = (*database)->catalog().contents().tables.at(name);
    rows.family = FamilyName(FamilyId{table.incarnation});
    std::vector<rocksdb::LiveFileMetaData> all;
    (*database)->db().GetLiveFilesMetaData(&all);
    for (const rocksdb::LiveFileMetaData& file : all)
      if (file.column_family_name == rows.family) rows.files.insert(file.relative_filename);
    EXPECT_FALSE(table.page_files.empty());
    for (size_t i = 0; i < table.page_files.size(); ++i)
      rows.files.insert(PageFilePath("", table.incarnation, i));
    return rows;
  }
  bool IsListed(const Rows& rows) const {
    return FamiliesIn(directory_.path("store")).contains(rows.family);
  }
  size_t CountOnDisk(const std::set<std::string>& files) const {
    size_t count = 0;
    for (const std::string& file : files)
      count += std::filesystem::exists(directory_.path("store") + "/" + file) ? 1 : 0;
    return count;
  }
  // A flush or a compaction that reads them goes on until its end.
  void ExpectGone(const Rows& rows) const {
    EXPECT_FALSE(IsListed(rows));
    EXPECT_TRUE(AwaitCondition([&] { return CountOnDisk(rows.files) == 0; }))
        << "its files are still there";
  }
  bool IsReserved() const {
    return std::filesystem::exists(directory_.path("store") + "/hps.reserve");
  }
  // An import and writes, then errors of a disk that fills up.
  void Prepare(StoreRun& run, Before before) {
    ASSERT_TRUE(run.Open().ok());
    ASSERT_TRUE(run.DoEvents(19).ok());
    if (before == Before::kWell) return;
    const bool at_flush = before == Before::kFlushFailed;
    const uint64_t failures = disk_->failures();
    disk_->Fail({.sticky = true,
                 .calls = kFileAppend | kFileCreate,
                 .path_contains = at_flush ? ".sst" : "MANIFEST",
                 .thread_contains = at_flush ? "rocksdb:high" : "",
                 .status = rocksdb::IOStatus::NoSpace("planned: no space left")});
    // Until an event has failed, and some more: each tries what has failed again.
    for (int i = 0, failed = 0; i < 200 && failed < 5; ++i) failed += run.DoEvents(1).ok() ? 0 : 1;
    ASSERT_GT(disk_->failures(), failures);
    disk_->Heal();
  }
  void ExpectDropped(DurableStore& store, const char* name) {
    const Rows rows = RowsOf(name);
    const absl::Status dropped = store.Drop(name);
    ASSERT_TRUE(dropped.ok()) << dropped;
    EXPECT_EQ(store.OpenTable(name).status().code(), absl::StatusCode::kNotFound);
    ExpectGone(rows);
  }
  void ExpectWholeWithout(const char* name) {
    RocksStoreOptions options = Options();
    options.mode = OpenMode::kReadOnly;
    const absl::StatusOr<VerifyReport> report = VerifyRocksStore(options, false, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->damage_count, 0u) << report->damage.front().what;
    const auto store = OpenRocksStore(options);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->OpenTable(name).status().code(), absl::StatusCode::kNotFound);
  }
};

// With not one byte free, whether or not the disk says so.
TEST_F(FullDiskDropTest, TheProcessThatHasTheStoreDropsATable) {
  for (const Before before : {Before::kWell, Before::kManifestFailed, Before::kFlushFailed}) {
    for (const bool tells : {true, false}) {
      SCOPED_TRACE(absl::StrCat("before ", static_cast<int>(before), ", tells ", tells));
      Clean();
      StoreRun run(kPlan, Options());
      Prepare(run, before);
      ASSERT_TRUE(IsReserved());
      disk_->SetFreeBytes(0, tells);
      EXPECT_TRUE(absl::IsResourceExhausted(run.DoEvents(1)));
      ExpectDropped(run.store(), "m/b");
      disk_->Heal();
      // The room is kept again for the next time.
      ASSERT_TRUE(run.store().Drop("m/a").ok());
      EXPECT_TRUE(IsReserved());
      run.Close();
      ExpectWholeWithout("m/b");
    }
  }
}

TEST_F(FullDiskDropTest, ACommandOpensTheStoreAndDropsATable) {
  for (const Before before : {Before::kWell, Before::kManifestFailed, Before::kFlushFailed}) {
    SCOPED_TRACE(absl::StrCat("before ", static_cast<int>(before)));
    Clean();
    StoreRun run(kPlan, Options());
    Prepare(run, before);
    run.Close();
    disk_->SetFreeBytes(0);
    const absl::Status opened = run.Open();
    ASSERT_TRUE(opened.ok()) << opened;
    ExpectDropped(run.store(), "m/b");
    run.Close();
    disk_->Heal();
    ExpectWholeWithout("m/b");
    ASSERT_TRUE(run.Open().ok());
    EXPECT_TRUE(IsReserved());
  }
}

// Catches: files of a dropped table that stay, on a full disk, until the store is opened anew,
// because they can't be removed at once.
TEST_F(FullDiskDropTest, WhatADropHasLeftGoesWithTheNextOne) {
  for (const bool by_refresh : {false, true}) {
    SCOPED_TRACE(by_refresh ? "by a refresh" : "by a drop");
    Clean();
    StoreRun run(kPlan, Options());
    Prepare(run, Before::kWell);
    const Rows rows = RowsOf("m/b");
    // Of this thread alone: a flush that meets the fault first would keep the drop from its write.
    disk_->Fail({.sticky = true,
                 .calls = kFileAppend | kFileCreate,
                 .path_contains = "MANIFEST",
                 .thread_contains = ThreadName(),
                 .status = rocksdb::IOStatus::IOError("a planned fault")});
    const absl::Status dropped = run.store().Drop("m/b");
    ASSERT_TRUE(dropped.ok()) << dropped;
    ASSERT_TRUE(IsListed(rows));
    disk_->Heal();
    disk_->SetFreeBytes(0);
    if (by_refresh) {
      EXPECT_TRUE(ErrorOf(run.store().Refresh()).ok());
    } else {
      EXPECT_EQ(run.store().Drop("m/no such table").code(), absl::StatusCode::kNotFound);
    }
    ExpectGone(rows);
    run.Close();
    disk_->Heal();
    ExpectWholeWithout("m/b");
  }
}

// What readers have pinned goes later; until then the reserve stays free for it.
TEST_F(FullDiskDropTest, ATableThatIsReadGoesWithItsLastReader) {
  StoreRun run(kPlan, Options());
  Prepare(run, Before::kWell);
  auto table = run.store().OpenTable("m/b");
  ASSERT_TRUE(table.ok()) << table.status();
  const Rows rows = RowsOf("m/b");
  disk_->SetFreeBytes(0);
  ASSERT_TRUE(run.store().Drop("m/b").ok());
  EXPECT_FALSE(IsReserved());
  table->reset();
  ExpectGone(rows);
  run.Close();
  disk_->Heal();
  ExpectWholeWithout("m/b");
}

}  // namespace
}  // namespace hps
