// What DurableTable::Write promises of a write that failed, and of those around it.
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/fakes/stamped_rows.h"
#include "tests/faults/failing_disk.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 32;
constexpr uint64_t kStamp = 5;

class DurabilityTest : public FailingDiskTest {
 protected:
  using Table = std::unique_ptr<DurableTable>;

  void Import(const std::vector<Key>& keys) {
    const std::vector<TableSpec> specs = {{.name = "m/a", .dim = kRowBytes / 4},
                                          {.name = "m/b", .dim = kRowBytes / 4}};
    const auto import = store_->BeginImport(specs);
    ASSERT_TRUE(import.ok()) << import.status();
    StampedRows rows(kStamp, kRowBytes, keys);
    for (size_t table = 0; table < specs.size(); ++table)
      ASSERT_TRUE((*import)->Add(table, 0, rows.keys(), rows.rows()).ok());
    ASSERT_TRUE((*import)->Commit().ok());
  }
  void Open() {
    auto store = OpenRocksStore(Options(SyncMode::kAlways));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void CutPowerAndOpen() {
    disk_->CutPower();
    disk_->Heal();
    store_.reset();
    ASSERT_TRUE(disk_->DropUnsynced().ok());
    Open();
  }
  Table OpenTable(const std::string& name) {
    auto table = store_->OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return *std::move(table);
  }
  // One row and a position, which a later look can tell from each other's.
  absl::Status Write(const std::string& name, Key key, Version version) {
    StampedRows rows(kStamp, kRowBytes, {key}, version);
    const StreamPosition position = {.partition = 0, .offset = version};
    return OpenTable(name)->Write({rows.batch(), {}, {&position, 1}});
  }
  // The version of the row; the position is that of the same write.
  Version Read(const std::string& name, Key key) {
    const Table table = OpenTable(name);
    const FetchedRows fetched(*table, {key});
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    EXPECT_EQ(fetched.outcomes[0], FetchOutcome::kHit);
    const Version version = fetched.versions[0];
    EXPECT_TRUE(StampedRow::Matches(kStamp, key, version, fetched.row(0)));
    const auto positions = table->Positions();
    EXPECT_TRUE(positions.ok());
    EXPECT_EQ(positions->empty() ? 0 : positions->at(0).offset, version) << "half a write";
    return version;
  }
  // Background work that had begun on the failing disk may report its error after it.
  static absl::Status Late(const std::function<absl::Status()>& change) {
    absl::Status status = change();
    for (int late_errors = 0; !status.ok() && late_errors < 3; ++late_errors) status = change();
    return status;
  }
  // A write of version 2 to m/a that fails after one of version 1. True when readers see it.
  bool FailAWrite(uint32_t calls, uint64_t nth) {
    SCOPED_TRACE(absl::StrCat("calls ", calls, ", the log's call ", nth));
    store_.reset();
    disk_->Heal();
    Clean();
    Open();
    Import({1, 2});
    EXPECT_TRUE(Write("m/a", 1, 1).ok());
    disk_->Fail({.nth = nth, .sticky = true, .calls = calls, .path_contains = ".log"});
    const absl::Status failed = Write("m/a", 1, 2);
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    return Read("m/a", 1) == 2;
  }

  std::unique_ptr<DurableStore> store_;
};

// The kinds of calls to a log that one write makes: all of them fail, or all but the first.
struct LogFault {
  uint32_t calls;
  uint64_t nth;
};
constexpr LogFault kLogFaults[] = {
    {kFileAppend, 0}, {kFileAppend, 1}, {kFileSync, 0}, {kFileAppend | kFileSync, 2}};

TEST_F(DurabilityTest, AnAcknowledgedWriteMakesDurableWhatReadersSawBefore) {
  int seen_count = 0;
  for (const LogFault& fault : kLogFaults) {
    const bool seen = FailAWrite(fault.calls, fault.nth);
    seen_count += seen ? 1 : 0;
    disk_->Heal();
    const absl::Status written = Late([&] { return Write("m/b", 2, 1); });  // of another table
    ASSERT_TRUE(written.ok()) << written;
    CutPowerAndOpen();
    EXPECT_EQ(Read("m/b", 2), 1u);
    EXPECT_EQ(Read("m/a", 1), seen ? 2u : 1u);
  }
  EXPECT_GT(seen_count, 0) << "no failed write was seen: what is there to keep?";
}

TEST_F(DurabilityTest, WithoutOneAFailedWriteMayGoButOnlyAsAWhole) {
  for (const LogFault& fault : kLogFaults) {
    FailAWrite(fault.calls, fault.nth);
    CutPowerAndOpen();
    EXPECT_GE(Read("m/a", 1), 1u);  // what was acknowledged stays
    ASSERT_TRUE(Write("m/a", 1, 2).ok());
    CutPowerAndOpen();
    EXPECT_EQ(Read("m/a", 1), 2u);
  }
}

TEST_F(DurabilityTest, SyncMakesDurableWhatAFailedWriteLeft) {
  for (const LogFault& fault : kLogFaults) {
    const bool seen = FailAWrite(fault.calls, fault.nth);
    EXPECT_TRUE(absl::IsUnavailable(store_->Sync()));
    disk_->Heal();
    const absl::Status synced = Late([&] { return store_->Sync(); });
    ASSERT_TRUE(synced.ok()) << synced;
    CutPowerAndOpen();
    EXPECT_EQ(Read("m/a", 1), seen ? 2u : 1u);
  }
}

}  // namespace
}  // namespace hps
