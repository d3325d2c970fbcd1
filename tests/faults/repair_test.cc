// A repair on a disk that fails: an I/O error is no damage, so it ends the repair and marks
// nothing.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/salvage/verify.h"
#include "testing/fakes/stamped_rows.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/one_table.h"

namespace hps {
namespace {

constexpr Key kRows = 2000;

class RepairTest : public FailingDiskTest {
 protected:
  RocksStoreOptions Options() const { return FailingDiskTest::Options(SyncMode::kNever); }

  // Imports m/a, writes to it, and damages a block of its rows.
  void MakeDamagedStore() {
    const auto store = OpenRocksStore(Options());
    ASSERT_TRUE(store.ok()) << store.status();
    const TableSpec spec = OneTable();
    const auto filled = FillOneTable((*store)->BeginImport({&spec, 1}), kRows);
    ASSERT_TRUE(filled.ok()) << filled.status();
    std::string largest;
    uintmax_t largest_bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path("store"))) {
      if (entry.path().extension() != ".sst" || entry.file_size() <= largest_bytes) continue;
      largest = entry.path();
      largest_bytes = entry.file_size();
    }
    std::fstream stream(largest, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(20'000);
    stream.put('\x5a').put('\x5a');
    ASSERT_TRUE(stream.good()) << largest;
  }

  absl::StatusOr<VerifyReport> Verify(bool repair) {
    return VerifyRocksStore(Options(), repair, {});
  }

  // Keys that are answered lost; every other one must be a hit with its row.
  size_t LostCount() {
    RocksStoreOptions options = Options();
    options.mode = OpenMode::kReadOnly;
    const auto store = OpenRocksStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto table = (*store)->OpenTable("m/a");
    EXPECT_TRUE(table.ok()) << table.status();
    std::vector<Key> keys;
    for (Key key = 0; key < kRows; ++key) keys.push_back(key);
    const FetchedRows fetched(**table, keys);
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    size_t lost = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      lost += fetched.outcomes[i] == FetchOutcome::kLost;
      EXPECT_NE(fetched.outcomes[i], FetchOutcome::kAbsent) << "key " << keys[i];
    }
    return lost;
  }

  // Repairs a copy of the store on a disk that fails as planned, and checks what is left of it.
  struct Trial {
    bool failed = false;
    uint64_t calls = 0;
  };
  void RepairACopy(const FileFaultPlan& plan, size_t lost, Trial* done) {
    const std::string whole = directory_.path("whole");
    std::filesystem::copy(directory_.path("store"), whole,
                          std::filesystem::copy_options::recursive);
    disk_->Fail(plan);
    const absl::StatusOr<VerifyReport> report = Verify(true);
    Trial& trial = *done = {.failed = !report.ok(), .calls = disk_->matching_calls()};
    disk_->Heal();
    if (report.ok()) {
      EXPECT_EQ(report->rows_marked_lost, lost);
    } else {
      EXPECT_FALSE(absl::IsDataLoss(report.status())) << report.status();
    }
    EXPECT_EQ(LostCount(), lost);
    const absl::StatusOr<VerifyReport> again = Verify(true);
    ASSERT_TRUE(again.ok()) << again.status();
    // What is left to mark: all, unless the repair failed behind its last mark or not at all.
    EXPECT_TRUE(again->rows_marked_lost == 0 || (trial.failed && again->rows_marked_lost == lost))
        << again->rows_marked_lost;
    EXPECT_EQ(LostCount(), lost);
    std::filesystem::remove_all(directory_.path("store"));
    std::filesystem::rename(whole, directory_.path("store"));
  }
};

// Catches: EIO, EMFILE and the like taken for damage, and intact rows marked lost for good.
TEST_F(RepairTest, AnIoErrorAtAnyCallMarksNothingLost) {
  MakeDamagedStore();
  if (HasFatalFailure()) return;
  const size_t lost = LostCount();
  ASSERT_GT(lost, 0u);
  ASSERT_LT(lost, 300u);
  for (const uint32_t calls : {uint32_t{kFileOpen}, uint32_t{kFileRead}, uint32_t{kFileList}}) {
    Trial healthy;
    RepairACopy({.nth = UINT64_MAX, .calls = calls}, lost, &healthy);
    const uint64_t call_count = healthy.calls;
    uint64_t failed = 0;
    uint64_t trials = 0;
    for (uint64_t nth = 0; nth < call_count; nth += 1 + call_count / Trials(40), ++trials) {
      for (const bool sticky : {true, false}) {
        SCOPED_TRACE(
            absl::StrCat("call ", nth, " of kind ", calls, sticky ? " and all later" : ""));
        Trial trial;
        RepairACopy({.nth = nth, .sticky = sticky, .calls = calls}, lost, &trial);
        if (HasFatalFailure()) return;
        failed += trial.failed ? 1 : 0;
      }
    }
    std::printf("kind %u: %llu calls, %llu of 2 x %llu repairs failed\n", calls,
                static_cast<unsigned long long>(call_count),
                static_cast<unsigned long long>(failed), static_cast<unsigned long long>(trials));
    EXPECT_GT(failed, trials / 2);
  }
}

// The same for verify alone: what it says of a disk that fails is an error, not a list of damage.
TEST_F(RepairTest, VerifyOnAFailingDiskReportsTheErrorAndNoDamage) {
  MakeDamagedStore();
  if (HasFatalFailure()) return;
  for (const char* file : {".sst", "CURRENT", "MANIFEST", "hps.manifest", ".log"}) {
    SCOPED_TRACE(file);
    disk_->Fail({.sticky = true, .calls = kFileOpen | kFileRead, .path_contains = file});
    EXPECT_EQ(Verify(false).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Verify(true).status().code(), absl::StatusCode::kUnavailable);
    disk_->Heal();
  }
  EXPECT_GT(Verify(false)->damage_count, 0u);
}

}  // namespace
}  // namespace hps
