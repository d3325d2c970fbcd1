// Merges of changes into new page files, in a store that is read and written meanwhile.
#include "l3_rocksdb/change_merger.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

constexpr uint32_t kMergeDim = 8;
constexpr size_t kMergeRowBytes = kMergeDim * 4;
constexpr Key kMergeRowCount = 1'000;  // keys 0, 2, 4, ...

// A disk that is full when a test says so.
class FullDisk final : public rocksdb::FileSystemWrapper {
 public:
  FullDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  std::atomic<bool> full{false};

  const char* Name() const override { return "FullDisk"; }
  rocksdb::IOStatus GetFreeSpace(const std::string& /*path*/, const rocksdb::IOOptions& /*options*/,
                                 uint64_t* bytes, rocksdb::IODebugContext* /*debug*/) override {
    *bytes = full ? 0 : uint64_t{1} << 40;
    return rocksdb::IOStatus::OK();
  }
};

class ChangeMergerTest : public testing::Test {
 protected:
  ChangeMergerTest() {
    options_.role = OwnerRole::kServer;
    options_.merge_keys_min = 1;
    options_.merge_retry = std::chrono::milliseconds(10);
    options_.config.merge_share = 0.02;  // 20 keys
    options_.config.merge_bytes_per_second = 0;
  }
  ~ChangeMergerTest() override {
    FaultPoints::DisarmAll();
    SetLogLevel(LogLevel::kWarning);
    Close();
  }

  // From the next opening on, free space is that of disk_.
  void UseDisk() {
    options_.env = env_.get();
    options_.config.free_bytes_min = 1'000'000;
  }
  // Writes keys that the store refuses.
  void WriteInVain(Key first, Key count) {
    std::vector<Key> keys;
    for (Key key = first; key < first + count; ++key) keys.push_back(key);
    StampedRows rows(stamp_, kMergeRowBytes, keys, 99);
    disk_->full = true;
    EXPECT_TRUE(absl::IsResourceExhausted(table_->Write({rows.batch()})));
    disk_->full = false;
  }
  testing::AssertionResult AwaitAt(const char* point) {
    return AwaitCondition([&] { return FaultPoints::IsWaiting(point); });
  }

  void Close() {
    table_.reset();
    store_.reset();
  }
  void Open() {
    Close();
    auto store = OpenRocksStore(options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    if (const auto tables = store_->Tables(); tables.ok() && !tables->empty())
      table_ = *store_->OpenTable("m/t");
  }
  void Import(uint64_t stamp) {
    if (store_ == nullptr) Open();
    stamp_ = stamp;
    const std::vector<TableSpec> specs = {{.name = "m/t", .dim = kMergeDim}};
    auto import = store_->BeginImport(specs);
    ASSERT_TRUE(import.ok()) << import.status();
    std::vector<Key> keys;
    expected_.clear();
    for (Key key = 0; key < kMergeRowCount; ++key) {
      keys.push_back(2 * key);
      expected_[2 * key] = 0;
    }
    StampedRows rows(stamp, kMergeRowBytes, keys);
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    const auto committed = (*import)->Commit();
    ASSERT_TRUE(committed.ok()) << committed.status();
    table_ = *store_->OpenTable("m/t");
  }
  // Sets some keys to the version and deletes others.
  void Write(Key first, Key count, Version version) {
    std::vector<Key> upserts;
    std::vector<Key> deletes;
    for (Key key = first; key < first + count; ++key)
      (key % 3 == 0 ? deletes : upserts).push_back(key);
    StampedRows rows(stamp_, kMergeRowBytes, upserts, version);
    const std::vector<StreamPosition> positions = {{0, 1, version}};
    const absl::Status written = table_->Write({rows.batch(), deletes, positions});
    ASSERT_TRUE(written.ok()) << written;
    for (const Key key : upserts) expected_[key] = version;
    for (const Key key : deletes) expected_.erase(key);
    position_ = version;
  }
  testing::AssertionResult AwaitMerges(uint64_t count) {
    return AwaitCondition([&] { return store_->Statistics().merges >= count; });
  }
  testing::AssertionResult AwaitFailed(uint64_t count) {
    return AwaitCondition([&] { return store_->Statistics().merges_failed >= count; });
  }
  std::vector<std::string> PageFiles() const { return PageFilesOf(directory_.Path("store")); }
  // The old file goes when its last reader has left.
  testing::AssertionResult AwaitOneFile() {
    return AwaitCondition([&] { return PageFiles().size() == 1; });
  }
  void ExpectRows(DurableTable& table) {
    std::vector<Key> keys;
    for (Key key = -1; key < 2 * kMergeRowCount + 200; ++key) keys.push_back(key);
    const FetchedRows fetched(table, keys);
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto known = expected_.find(keys[i]);
      const bool exists = known != expected_.end();
      ASSERT_EQ(fetched.outcomes[i], exists ? FetchOutcome::kHit : FetchOutcome::kAbsent)
          << keys[i];
      if (!exists) continue;
      ASSERT_EQ(fetched.versions[i], known->second) << keys[i];
      ASSERT_TRUE(StampedRow::Matches(stamp_, keys[i], known->second, fetched.row(i))) << keys[i];
    }
    const std::vector<StreamPosition> positions =
        position_ == 0 ? std::vector<StreamPosition>()
                       : std::vector<StreamPosition>{{0, 1, position_}};
    EXPECT_EQ(*table.Positions(), positions);
  }
  void ExpectRows() { ExpectRows(*table_); }
  void ExpectScan(DurableTable& table) {
    const auto cursor = *table.Scan();
    std::vector<Key> keys(expected_.size() + 1);
    StampedRows rows(stamp_, kMergeRowBytes, keys);
    const auto count = cursor->Next(keys, rows.rows(), {});
    ASSERT_TRUE(count.ok()) << count.status();
    ASSERT_EQ(*count, expected_.size());
    size_t i = 0;
    for (const auto& [key, version] : expected_) ASSERT_EQ(keys[i++], key);
  }
  void ExpectIntact() {
    Close();
    const auto report = VerifyRocksStore(options_, false, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->damage_count, 0u);
    EXPECT_EQ(report->rows, expected_.size());
    Open();
  }
  // The rows, the scan, one page file, and the same after the store was opened again.
  void ExpectWhole() {
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    ASSERT_NO_FATAL_FAILURE(ExpectScan(*table_));
    EXPECT_TRUE(AwaitOneFile());
    ASSERT_NO_FATAL_FAILURE(ExpectIntact());
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    EXPECT_TRUE(AwaitOneFile());
  }

  const TestDirectory directory_;
  const std::shared_ptr<FullDisk> disk_ = std::make_shared<FullDisk>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
  RocksStoreOptions options_ = TestOptions(directory_.Path("store"));
  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
  uint64_t stamp_ = 0;
  std::map<Key, Version> expected_;
  Version position_ = 0;
};

TEST_F(ChangeMergerTest, MergesWhenTheShareOfChangesIsReached) {
  Import(1);
  const std::string imported = PageFiles().at(0);
  Write(100, 19, 5);
  EXPECT_EQ(store_->Statistics().merges, 0u);
  Write(100, 19, 6);  // the same keys
  EXPECT_EQ(store_->Statistics().merges, 0u);
  Write(-1, 1, 7);
  ASSERT_TRUE(AwaitMerges(1));
  EXPECT_TRUE(table_->IsCurrent());
  EXPECT_EQ(table_->Info().row_count, expected_.size());
  EXPECT_GT(store_->Statistics().merged_bytes, 0u);
  ExpectWhole();
  EXPECT_NE(PageFiles().at(0), imported);
  EXPECT_EQ(store_->Statistics().merges, 0u) << "the changes are gone";
  for (Version round = 1; round <= 3; ++round) {
    Write(200 * static_cast<Key>(round), 50, 10 + round);
    ASSERT_TRUE(AwaitMerges(round));
  }
  ExpectWhole();
}

TEST_F(ChangeMergerTest, ChangesThatWereDueBeforeAreMergedWhenTheStoreIsOpened) {
  options_.config.merge_share = 0;
  Import(1);
  Write(100, 500, 5);
  Open();
  EXPECT_EQ(store_->Statistics().merges, 0u) << "0 = never";
  options_.config.merge_share = 0.02;
  Open();
  ASSERT_TRUE(AwaitMerges(1));
  ExpectWhole();
}

TEST_F(ChangeMergerTest, ATableMayLoseAllRowsAndGetOthers) {
  Import(1);
  std::vector<Key> keys;
  for (const auto& [key, version] : expected_) keys.push_back(key);
  ASSERT_TRUE(table_->Write({.deletes = keys}).ok());
  expected_.clear();
  ASSERT_TRUE(AwaitMerges(1));
  ASSERT_TRUE(AwaitCondition([&] { return PageFiles().empty(); }));
  ExpectRows();
  ASSERT_NO_FATAL_FAILURE(ExpectIntact());
  ExpectRows();
  Write(10, 30, 5);
  ASSERT_TRUE(AwaitMerges(1));
  ExpectWhole();
}

TEST_F(ChangeMergerTest, ChangesMadeDuringAMergeStay) {
  Import(1);
  FaultPoints::Arm("l3.merge.after_build", {.action = FaultAction::kWait, .times = 1});
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitAt("l3.merge.after_build"));
  Write(130, 15, 6);
  ExpectRows();
  options_.config.merge_share = 1;  // from the next opening on
  FaultPoints::DisarmAll();
  ASSERT_TRUE(AwaitMerges(1));
  Write(150, 4, 7);
  ExpectWhole();
}

TEST_F(ChangeMergerTest, AReaderOfTheOldFileKeepsIt) {
  Import(1);
  const std::string imported = PageFiles().at(0);
  const std::map<Key, Version> before = expected_;
  auto cursor = *table_->Scan();
  std::vector<Key> keys(10);
  StampedRows rows(1, kMergeRowBytes, keys);
  ASSERT_EQ(*cursor->Next(keys, rows.rows(), {}), 10u);
  Write(500, 100, 5);
  ASSERT_TRUE(AwaitMerges(1));
  EXPECT_TRUE(std::filesystem::exists(imported));
  ExpectRows();
  size_t count = 10;
  for (size_t read = 1; read > 0; count += read) {
    const auto next = cursor->Next(keys, rows.rows(), {});
    ASSERT_TRUE(next.ok()) << next.status();
    read = *next;
  }
  EXPECT_EQ(count, before.size());
  cursor.reset();
  EXPECT_TRUE(AwaitOneFile());
  EXPECT_FALSE(std::filesystem::exists(imported));
  ExpectWhole();
}

// One byte per second: the merge waits for hours after its first read.
TEST_F(ChangeMergerTest, ClosingEndsAMerge) {
  options_.config.merge_bytes_per_second = 1;
  Import(1);
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitCondition([&] { return PageFiles().size() == 2; }));
  Write(110, 60, 6);
  Open();
  ASSERT_TRUE(AwaitCondition([&] { return PageFiles().size() == 2; }));
  ExpectRows();
  options_.config.merge_bytes_per_second = 0;
  Open();
  ASSERT_TRUE(AwaitMerges(1));
  ExpectWhole();
}

TEST_F(ChangeMergerTest, AnImportOrADropEndsAMerge) {
  options_.config.merge_bytes_per_second = 1;
  Import(1);
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitCondition([&] { return PageFiles().size() == 2; }));
  position_ = 0;
  Import(2);
  ASSERT_TRUE(AwaitOneFile());
  ExpectRows();
  Write(100, 60, 6);
  ASSERT_TRUE(AwaitCondition([&] { return PageFiles().size() == 2; }));
  table_.reset();
  ASSERT_TRUE(store_->Drop("m/t").ok());
  ASSERT_TRUE(AwaitCondition([&] { return PageFiles().empty(); }));
  EXPECT_EQ(store_->Statistics().merges_failed, 0u);
  position_ = 0;
  Import(3);
  ExpectWhole();
}

// Of two tables that are due, one is imported again while the other is being merged.
TEST_F(ChangeMergerTest, ATableThatIsNotDueAnyMoreIsNotMerged) {
  options_.config.merge_share = 0;
  Import(1);
  Write(100, 60, 5);
  const TableSpec other = {.name = "n/t", .dim = kMergeDim};
  const auto import_other = [&] {
    const auto import = store_->BeginImport({&other, 1});
    ASSERT_TRUE(import.ok()) << import.status();
    StampedRows rows(2, kMergeRowBytes, {1, 2, 3});
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    ASSERT_TRUE((*import)->Commit().ok());
  };
  import_other();
  StampedRows rows(2, kMergeRowBytes, {1, 2}, 5);
  ASSERT_TRUE((*store_->OpenTable("n/t"))->Write({rows.batch()}).ok());
  options_.config.merge_share = 0.02;
  FaultPoints::Arm("l3.merge.after_build", {.action = FaultAction::kWait, .times = 1});
  Open();
  ASSERT_TRUE(AwaitAt("l3.merge.after_build"));
  import_other();
  FaultPoints::DisarmAll();
  ASSERT_TRUE(AwaitMerges(1));
  // The old file is removed after the last table that was due.
  EXPECT_TRUE(AwaitCondition([&] { return PageFiles().size() == 2; }));
  EXPECT_EQ(store_->Statistics().merges, 1u);
  EXPECT_EQ(store_->Statistics().merges_failed, 0u);
  ExpectRows();
}

// Writes that were refused leave no trace that later ones could rely on.
TEST_F(ChangeMergerTest, AReaderProcessSeesWritesAfterOnesThatWereRefused) {
  UseDisk();
  Import(1);
  FaultPoints::Arm("l3.merge.after_build", {.action = FaultAction::kWait, .times = 1});
  WriteInVain(100, 60);
  const std::vector<StreamPosition> positions = {{0, 1, 1}};
  ASSERT_TRUE(table_->Write({.positions = positions}).ok());  // asks for the merge
  ASSERT_TRUE(AwaitAt("l3.merge.after_build"));
  WriteInVain(200, 10);
  FaultPoints::DisarmAll();
  ASSERT_TRUE(AwaitMerges(1));
  EXPECT_TRUE(AwaitOneFile());
  Write(150, 4, 7);
  RocksStoreOptions options = options_;
  options.mode = OpenMode::kReadOnly;
  const auto reader = OpenRocksStore(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ExpectRows(**(*reader)->OpenTable("m/t"));
}

TEST_F(ChangeMergerTest, AMergeThatIsBuiltSwitchesOnAFullDisk) {
  SetLogLevel(LogLevel::kOff);
  UseDisk();
  Import(1);
  FaultPoints::Arm("l3.merge.after_build", {.action = FaultAction::kWait, .times = 1});
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitAt("l3.merge.after_build"));
  disk_->full = true;
  FaultPoints::DisarmAll();
  ASSERT_TRUE(AwaitMerges(1));
  EXPECT_TRUE(AwaitOneFile());
  disk_->full = false;
  ExpectWhole();
}

TEST_F(ChangeMergerTest, AMergeEndsWhenTheDiskIsFull) {
  SetLogLevel(LogLevel::kOff);
  options_.merge_retry = std::chrono::hours(1);
  UseDisk();
  Import(1);
  FaultPoints::Arm("l3.merge.after_family", {.action = FaultAction::kWait, .times = 1});
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitAt("l3.merge.after_family"));
  disk_->full = true;
  FaultPoints::DisarmAll();
  ASSERT_TRUE(AwaitFailed(1));
  EXPECT_TRUE(AwaitOneFile());
  EXPECT_EQ(store_->Statistics().merges, 0u);
  disk_->full = false;
  ExpectRows();
}

// An error after the switch, as of a sync.
TEST_F(ChangeMergerTest, AMergeThatHasSwitchedIsNotTriedAgain) {
  SetLogLevel(LogLevel::kOff);
  Import(1);
  FaultPoints::Arm("l3.merge.after_switch", {.action = FaultAction::kFail, .times = 1});
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitMerges(1));
  EXPECT_TRUE(AwaitOneFile());
  EXPECT_EQ(store_->Statistics().merges_failed, 0u);
  EXPECT_EQ(store_->Statistics().merges, 1u);
  ExpectWhole();
}

TEST_F(ChangeMergerTest, SnapshotsDuringAndAfterAMerge) {
  Import(1);
  FaultPoints::Arm("l3.merge.after_build", {.action = FaultAction::kWait, .times = 1});
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitAt("l3.merge.after_build"));
  ASSERT_TRUE(store_->Snapshot("during").ok());
  FaultPoints::DisarmAll();
  ASSERT_TRUE(AwaitMerges(1));
  ASSERT_TRUE(store_->Snapshot("after").ok());
  const std::map<Key, Version> then = expected_;
  Write(300, 60, 6);
  ASSERT_TRUE(AwaitMerges(2));
  ExpectRows();
  Close();
  expected_ = then;
  position_ = 5;
  for (const char* name : {"during", "after"}) {
    SCOPED_TRACE(name);
    RocksStoreOptions options = options_;
    options.config.path = directory_.Path("store/snapshots/") + name;
    options.config.merge_share = 0;
    const auto report = VerifyRocksStore(options, false, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->damage_count, 0u);
    const auto snapshot = OpenRocksStore(options);
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    ExpectRows(**(*snapshot)->OpenTable("m/t"));
  }
}

// A process that has the store open beside the writer.
TEST_F(ChangeMergerTest, AReaderProcessOutlivesTheReplacement) {
  Import(1);
  RocksStoreOptions options = options_;
  options.mode = OpenMode::kReadOnly;
  const auto reader = OpenRocksStore(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto old = *(*reader)->OpenTable("m/t");
  const std::map<Key, Version> before = expected_;
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitMerges(1));
  ASSERT_TRUE(AwaitOneFile());
  const std::map<Key, Version> after = expected_;
  expected_ = before;
  position_ = 0;
  ExpectRows(*old);
  expected_ = after;
  position_ = 5;
  ASSERT_TRUE((*reader)->Refresh()->changed);
  EXPECT_FALSE(old->IsCurrent());
  const auto newer = *(*reader)->OpenTable("m/t");
  ExpectRows(*newer);
  Write(100, 4, 6);
  ASSERT_TRUE((*reader)->Refresh()->changed);
  ExpectRows(**(*reader)->OpenTable("m/t"));
}

// Of each step: the table is served as before, nothing is left, and the next try succeeds.
TEST_F(ChangeMergerTest, AMergeThatFailsChangesNothing) {
  SetLogLevel(LogLevel::kOff);
  options_.merge_retry = std::chrono::hours(1);
  for (const char* point :
       {"l3.merge.before_family", "l3.merge.after_family", "l3.merge.after_build",
        "l3.merge.before_switch", "l3.merge.in_switch", "l3_pages.create.call",
        "l3_pages.write.call", "l3_pages.sync.call", "l3_pages.sync_directory.call",
        "l3_pages.read.call", "l3_pages.open.call"}) {
    SCOPED_TRACE(point);
    position_ = 0;
    Close();
    Import(1);
    FaultPoints::Arm(point, {.action = FaultAction::kFail,
                             .status = absl::ResourceExhaustedError("the disk is full")});
    Write(100, 60, 5);
    ASSERT_TRUE(AwaitFailed(1));
    FaultPoints::DisarmAll();
    Write(120, 10, 6);
    EXPECT_EQ(store_->Statistics().merges, 0u);
    EXPECT_TRUE(AwaitOneFile());
    ExpectRows();
    Open();  // forgets that it is to wait
    ASSERT_TRUE(AwaitMerges(1));
    ExpectRows();
  }
  ExpectWhole();
}

TEST_F(ChangeMergerTest, TriesAgainAfterAFailure) {
  SetLogLevel(LogLevel::kOff);
  Import(1);
  FaultPoints::Arm("l3_pages.write.call",
                   {.action = FaultAction::kFail,
                    .status = absl::ResourceExhaustedError("the disk is full"),
                    .times = 1});
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitMerges(1));
  EXPECT_EQ(store_->Statistics().merges_failed, 1u);
  ExpectWhole();
}

// The rows of the damaged page would be absent in the new file, instead of lost.
TEST_F(ChangeMergerTest, ADamagedTableIsNotMerged) {
  SetLogLevel(LogLevel::kOff);
  Import(1);
  {
    std::fstream file(PageFiles().at(0), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(4096 * 4 + 100);
    file.put('\x5a');
  }
  Write(100, 60, 5);
  ASSERT_TRUE(AwaitFailed(1));
  EXPECT_EQ(store_->Statistics().merges, 0u);
  std::vector<Key> keys;
  for (Key key = 0; key < 2 * kMergeRowCount; ++key) keys.push_back(key);
  const FetchedRows fetched(*table_, keys);
  ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
  EXPECT_GT(fetched.counts->lost, 0u);
}

// Two threads read while one writes and merges run one after the other: a row that a reader was
// told of is there, with this version or a newer one.
TEST_F(ChangeMergerTest, ReadersAndAWriterBesideMerges) {
  options_.config.merge_share = 0.003;
  Import(1);
  constexpr Version kVersions = 400;
  constexpr Key kKeys = 40;
  std::atomic<Version> written{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<bool> done{false};
  const auto read = [&] {
    std::vector<Key> keys;
    for (Key key = 0; key < kKeys; ++key) keys.push_back(key * 37);
    while (!done) {
      const Version seen = written.load(std::memory_order_acquire);
      const FetchedRows fetched(*table_, keys);
      if (!fetched.counts.ok()) ++wrong;
      for (Version version = seen > 30 ? seen - 30 : 1; version <= seen; ++version) {
        const size_t i = version % kKeys;
        if (fetched.outcomes[i] != FetchOutcome::kHit || fetched.versions[i] < version ||
            !StampedRow::Matches(1, keys[i], fetched.versions[i], fetched.row(i)))
          ++wrong;
      }
    }
  };
  std::thread first(read);
  std::thread second(read);
  for (Version version = 1; version <= kVersions; ++version) {
    const Key key = static_cast<Key>(version % kKeys) * 37;
    StampedRows rows(1, kMergeRowBytes, {key}, version);
    const std::vector<StreamPosition> positions = {{0, 1, version}};
    EXPECT_TRUE(table_->Write({rows.batch(), {}, positions}).ok());
    expected_[key] = version;
    position_ = version;
    written.store(version, std::memory_order_release);
    if (version % 100 == 0) {
      EXPECT_TRUE(AwaitMerges(version / 100));
    }
  }
  done = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0u);
  ExpectWhole();
}

}  // namespace
}  // namespace hps
