// Calls on page files that fail, transfer half of their bytes, or read a flipped bit: an import
// leaves the old rows or brings the new ones, and no read is answered with a wrong row or with
// "absent" because of it.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/fakes/stamped_rows.h"
#include "testing/faults/fault_points.h"
#include "tests/faults/one_table.h"
#include "tests/faults/store_run.h"
#include "tests/faults/temporary_directory.h"
#include "tests/faults/test_fault_store.h"

namespace hps {
namespace {

// Event 5 is an import.
constexpr EventPlan kPlan = {.seed = 15, .import_every = 5};

class PageFileFaultTest : public testing::Test {
 protected:
  // The log would tell of the planned errors.
  PageFileFaultTest() { SetLogLevel(LogLevel::kOff); }
  ~PageFileFaultTest() override {
    FaultPoints::DisarmAll();
    SetLogLevel(LogLevel::kWarning);
  }

  std::string path() const { return directory_.path("store"); }
  RocksStoreOptions Options() const { return TestStoreOptions(path()); }
  void Clean() { std::filesystem::remove_all(path()); }
  static void Fail(const std::string& point, const absl::Status& status, uint64_t skipped = 0,
                   uint64_t times = UINT64_MAX) {
    FaultPoints::Arm(point, {.action = FaultAction::kFail,
                             .status = status,
                             .arrivals_skipped = skipped,
                             .times = times});
  }
  // How often an action passes the point.
  template <typename Action>
  static uint64_t CountArrivals(const std::string& point, Action action) {
    Fail(point, absl::UnavailableError("never"), UINT64_MAX);
    action();
    const uint64_t count = FaultPoints::Arrivals()[point];
    FaultPoints::DisarmAll();
    return count;
  }
  void ExpectNothingLeft(DurableStore& store) const {
    EXPECT_TRUE(std::filesystem::is_empty(path() + "/staging"));
    std::set<std::string> known;
    const std::vector<TableInfo> tables = *store.Tables();
    for (const TableInfo& table : tables) known.insert(PageFilePath(path(), table.incarnation, 0));
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(PagesDirectory(path())))
      found.insert(entry.path().string());
    EXPECT_EQ(found, known);
  }

  const TemporaryDirectory directory_;
};

// A full disk, and one that fails, at the first and at the last call of each kind.
TEST_F(PageFileFaultTest, AnImportWhoseCallsFailLeavesTheOldRows) {
  uint64_t failed = 0;
  for (const char* point : {"l3_pages.create.call", "l3_pages.write.call", "l3_pages.sync.call",
                            "l3_pages.sync_directory.call", "l3_pages.open.call",
                            "l3_pages.read.call", "l3.pages.before_link", "l3.pages.before_sync"}) {
    Clean();
    StoreRun counted(kPlan, Options());
    ASSERT_TRUE(counted.Open().ok());
    ASSERT_TRUE(counted.DoEvents(4).ok());
    const uint64_t count =
        CountArrivals(point, [&] { EXPECT_TRUE(counted.DoEvents(1).ok()) << point; });
    counted.Close();
    ASSERT_GT(count, 0u) << point;
    for (const uint64_t skipped : std::set<uint64_t>{0, count - 1}) {
      for (const absl::StatusCode code :
           {absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
        SCOPED_TRACE(absl::StrCat(point, " ", skipped, ": ", absl::StatusCodeToString(code)));
        Clean();
        StoreRun run(kPlan, Options());
        ASSERT_TRUE(run.Open().ok());
        ASSERT_TRUE(run.DoEvents(4).ok());
        Fail(point, absl::Status(code, "a planned fault"), skipped);
        const absl::Status imported = run.DoEvents(1);
        EXPECT_EQ(imported.code(), code) << imported;
        ++failed;
        FaultPoints::DisarmAll();
        const absl::Status checked = run.Check();
        ASSERT_TRUE(checked.ok()) << checked;
        ASSERT_EQ(run.state().events(), 4u) << "the import is there";
        const absl::Status again = run.DoEvents(2);
        ASSERT_TRUE(again.ok()) << again;
        ASSERT_TRUE(run.Check().ok());
        ExpectNothingLeft(run.store());
        ASSERT_TRUE(run.Open().ok());
        ASSERT_TRUE(run.Check().ok());
      }
    }
  }
  std::printf("%llu imports failed\n", static_cast<unsigned long long>(failed));
}

// What a failed deletion leaves goes with the next change of tables.
TEST_F(PageFileFaultTest, OldFilesThatCanNotBeRemovedGoLater) {
  StoreRun run(kPlan, Options());
  ASSERT_TRUE(run.Open().ok());
  ASSERT_TRUE(run.DoEvents(4).ok());
  Fail("l3.pages.before_removal", absl::UnavailableError("a planned fault"));
  ASSERT_TRUE(run.DoEvents(1).ok());
  FaultPoints::DisarmAll();
  ASSERT_TRUE(run.DoEvents(5).ok());  // with an import
  ASSERT_TRUE(run.Check().ok());
  ExpectNothingLeft(run.store());
}

TEST_F(PageFileFaultTest, CallsThatTransferHalfAreGoneOnWith) {
  for (const char* point : {"l3_pages.write.call", "l3_pages.read.call", "l3_pages.fetch.read"}) {
    SCOPED_TRACE(point);
    Clean();
    Fail(point, absl::OutOfRangeError("half"));
    StoreRun run(kPlan, Options());
    ASSERT_TRUE(run.Open().ok());
    ASSERT_TRUE(run.DoEvents(6).ok());
    const absl::Status checked = run.Check();
    EXPECT_TRUE(checked.ok()) << checked;
    EXPECT_GT(FaultPoints::Arrivals()[point], 0u);
    FaultPoints::DisarmAll();
  }
}

// Of one table with the rows 0 to kRows - 1; kChanged is changed and kDeleted deleted.
class PageReadFaultTest : public PageFileFaultTest {
 protected:
  static constexpr uint64_t kRows = 1000;
  static constexpr Key kChanged = 300;
  static constexpr Key kDeleted = 301;

  void MakeStore() {
    auto opened = OpenRocksStore(Options());
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    const TableSpec spec = OneTable();
    const auto filled = FillOneTable(store_->BeginImport({&spec, 1}), kRows);
    ASSERT_TRUE(filled.ok()) << filled.status();
    table_ = *store_->OpenTable("m/a");
    StampedRows rows(1, spec.row_bytes(), {kChanged}, 7);
    const std::vector<Key> deletes = {kDeleted};
    ASSERT_TRUE(table_->Write({.upserts = rows.batch(), .deletes = deletes}).ok());
  }
  void Close() {
    table_.reset();
    store_.reset();
  }
  FetchedRows FetchAll() {
    std::vector<Key> keys;
    for (uint64_t key = 0; key < kRows; ++key) keys.push_back(static_cast<Key>(key));
    return {*table_, keys};
  }
  // Expects the outcome for all rows that are in the page file, and the others as they are.
  void ExpectAll(const FetchedRows& fetched, FetchOutcome expected) {
    for (size_t i = 0; i < fetched.keys.size(); ++i) {
      const Key key = fetched.keys[i];
      const FetchOutcome outcome = key == kChanged   ? FetchOutcome::kHit
                                   : key == kDeleted ? FetchOutcome::kAbsent
                                                     : expected;
      ASSERT_EQ(fetched.outcomes[i], outcome) << key;
      if (outcome == FetchOutcome::kHit) {
        ASSERT_TRUE(StampedRow::Matches(1, key, key == kChanged ? 7 : 0, fetched.row(i))) << key;
      }
    }
  }
  absl::Status ScanAll() {
    HPS_ASSIGN_OR_RETURN(const auto cursor, table_->Scan());
    std::vector<Key> keys(100);
    StampedRows rows(1, OneTable().row_bytes(), keys);
    for (;;) {
      HPS_ASSIGN_OR_RETURN(const size_t count, cursor->Next(keys, rows.rows(), {}));
      if (count == 0) return absl::OkStatus();
    }
  }

  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
};

// An error of the disk says nothing about the rows: they are neither absent nor lost.
TEST_F(PageReadFaultTest, ReadsThatFailAreErrors) {
  MakeStore();
  Fail("l3_pages.fetch.read", absl::UnavailableError("a planned fault"));
  Fail("l3_pages.read.call", absl::UnavailableError("a planned fault"));
  const FetchedRows failed = FetchAll();
  EXPECT_EQ(failed.counts.status().code(), absl::StatusCode::kUnavailable);
  ExpectAll(failed, FetchOutcome::kMiss);
  EXPECT_EQ(ScanAll().code(), absl::StatusCode::kUnavailable);
  FaultPoints::DisarmAll();
  const FetchedRows healed = FetchAll();
  ASSERT_TRUE(healed.counts.ok()) << healed.counts.status();
  ExpectAll(healed, FetchOutcome::kHit);
  EXPECT_TRUE(ScanAll().ok());
}

TEST_F(PageReadFaultTest, PagesWithFlippedBitsAreLost) {
  MakeStore();
  Fail("l3_pages.fetch.read", absl::DataLossError("a planned flip"));
  Fail("l3_pages.read.call", absl::DataLossError("a planned flip"));
  const FetchedRows flipped = FetchAll();
  ASSERT_TRUE(flipped.counts.ok()) << flipped.counts.status();
  ExpectAll(flipped, FetchOutcome::kLost);
  EXPECT_EQ(ScanAll().code(), absl::StatusCode::kDataLoss);
  FaultPoints::DisarmAll();
  ExpectAll(FetchAll(), FetchOutcome::kHit);
}

// Each read of opening a store and of verify fails once, or reads a flipped bit once.
TEST_F(PageReadFaultTest, VerifyTellsErrorsFromDamage) {
  MakeStore();
  Close();
  const auto verify = [&] { return VerifyRocksStore(Options(), false, {}); };
  for (const char* point : {"l3_pages.open.call", "l3_pages.read.call"}) {
    const uint64_t count = CountArrivals(point, [&] { EXPECT_EQ(verify()->damage_count, 0u); });
    ASSERT_GT(count, 0u) << point;
    for (uint64_t skipped = 0; skipped < count; ++skipped) {
      SCOPED_TRACE(absl::StrCat(point, " ", skipped));
      Fail(point, absl::UnavailableError("a planned fault"), skipped, 1);
      EXPECT_EQ(verify().status().code(), absl::StatusCode::kUnavailable);
      FaultPoints::DisarmAll();
      if (point == std::string("l3_pages.open.call")) continue;
      Fail(point, absl::DataLossError("a planned flip"), skipped, 1);
      const auto flipped = verify();
      ASSERT_TRUE(flipped.ok()) << flipped.status();
      EXPECT_GT(flipped->damage_count, 0u);
      FaultPoints::DisarmAll();
    }
  }
  EXPECT_EQ(verify()->damage_count, 0u);
}

// A disk that fails while the store is being opened loses nothing. The rest of the store is served.
TEST_F(PageReadFaultTest, PageFilesThatCanNotBeReadAreNotLost) {
  MakeStore();
  for (const char* point : {"l3_pages.open.call", "l3_pages.read.call"}) {
    for (const absl::StatusCode code :
         {absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
      SCOPED_TRACE(absl::StrCat(point, ": ", absl::StatusCodeToString(code)));
      Close();
      Fail(point, absl::Status(code, "a planned fault"));
      auto opened = OpenRocksStore(Options());
      FaultPoints::DisarmAll();
      if (code == absl::StatusCode::kUnavailable) {
        ASSERT_TRUE(opened.ok()) << opened.status();
        table_ = *(*opened)->OpenTable("m/a");
        const FetchedRows failed = FetchAll();
        EXPECT_EQ(failed.counts.status().code(), code);
        ExpectAll(failed, FetchOutcome::kMiss);
        table_.reset();
      } else {
        EXPECT_EQ(opened.status().code(), code);
      }
      opened = absl::UnknownError("closed");
      opened = OpenRocksStore(Options());
      ASSERT_TRUE(opened.ok()) << opened.status();
      store_ = *std::move(opened);
      table_ = *store_->OpenTable("m/a");
      ExpectAll(FetchAll(), FetchOutcome::kHit);
    }
  }
}

}  // namespace
}  // namespace hps
