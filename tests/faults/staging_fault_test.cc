// Imports on a disk that fails at any call: the table is as it was, or the import is there, whole.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/one_table.h"

namespace hps {
namespace {

constexpr uint64_t kOldRows = 100;
constexpr uint64_t kNewRows = 200;
constexpr uint64_t kNewestRows = 300;

// What fails of page files: page_file_fault_test.
class StagingFaultTest : public FailingDiskTest {
 protected:
  void OpenServer() { OpenServer(TestStoreOptions(directory_.path("store"))); }
  void OpenServer(RocksStoreOptions options) {
    server_.reset();
    Clean();
    options.role = OwnerRole::kServer;
    auto opened = OpenRocksStore(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    server_ = *std::move(opened);
    const TableSpec spec = OneTable();
    const absl::Status imported = FillOneTable(server_->BeginImport({&spec, 1}), kOldRows).status();
    ASSERT_TRUE(imported.ok()) << imported;
  }
  // As a command does it beside the server, on the disk that fails.
  absl::StatusOr<BulkImport::Result> Stage(uint64_t row_count = kNewRows) {
    const TableSpec spec = OneTable();
    RocksStoreOptions options = Options(SyncMode::kNever);
    return FillOneTable(StageImport(options, {&spec, 1}), row_count);
  }
  uint64_t RowCount() const { return server_->Tables()->at(0).row_count; }
  bool NothingIsStaged() const {
    return std::filesystem::is_empty(directory_.path("store") + "/staging");
  }

  std::unique_ptr<DurableStore> server_;
};

// Catches: an import that fails after its manifest has its name, and whose files are then removed
// under the server that has begun to take it.
TEST_F(StagingFaultTest, AStagedImportIsReadyOrGoneWhateverCallFails) {
  OpenServer();
  disk_->Fail({.nth = UINT64_MAX});
  ASSERT_TRUE(Stage().ok());
  const uint64_t call_count = disk_->matching_calls();
  uint64_t failed = 0;
  const uint64_t trials = Trials(call_count);
  for (uint64_t trial = 0; trial < trials; ++trial) {
    const uint64_t nth = trial * call_count / trials;
    for (const bool sticky : {false, true}) {
      SCOPED_TRACE(absl::StrCat("call ", nth, sticky ? " and all later" : ""));
      OpenServer();
      disk_->Fail({.nth = nth, .sticky = sticky});
      const auto staged = Stage();
      disk_->Heal();
      failed += !staged.ok();
      const auto refreshed = server_->Refresh();
      ASSERT_TRUE(ErrorOf(refreshed).ok()) << ErrorOf(refreshed);
      const bool changed = refreshed->changed;
      const bool says_may = absl::StrContains(staged.status().message(), "may still be staged");
      if (!says_may) {
        EXPECT_EQ(changed, staged.ok()) << staged.status();
      }
      EXPECT_EQ(RowCount(), changed ? kNewRows : kOldRows);
      // What a failed removal left goes with the next look.
      EXPECT_TRUE(ErrorOf(server_->Refresh()).ok());
      EXPECT_TRUE(NothingIsStaged());
    }
  }
  std::printf("%llu calls, %llu of 2 x %llu imports failed\n",
              static_cast<unsigned long long>(call_count), static_cast<unsigned long long>(failed),
              static_cast<unsigned long long>(trials));
  EXPECT_GT(failed, trials);
}

// Catches: an import that goes before the newer one is there for good.
TEST_F(StagingFaultTest, TheNewestCompleteImportIsThereWhateverCallFails) {
  OpenServer();
  ASSERT_TRUE(Stage().ok());
  disk_->Fail({.nth = UINT64_MAX});
  ASSERT_TRUE(Stage(kNewestRows).ok());
  const uint64_t call_count = disk_->matching_calls();
  const uint64_t trials = Trials(call_count);
  uint64_t older_taken = 0;
  for (uint64_t trial = 0; trial < trials; ++trial) {
    const uint64_t nth = trial * call_count / trials;
    for (const bool sticky : {false, true}) {
      SCOPED_TRACE(absl::StrCat("call ", nth, sticky ? " and all later" : ""));
      OpenServer();
      ASSERT_TRUE(Stage().ok());
      disk_->Fail({.nth = nth, .sticky = sticky});
      const auto newest = Stage(kNewestRows);
      disk_->Heal();
      const auto refreshed = server_->Refresh();
      ASSERT_TRUE(ErrorOf(refreshed).ok()) << ErrorOf(refreshed);
      const bool changed = refreshed->changed;
      EXPECT_TRUE(changed);
      const bool says_may = absl::StrContains(newest.status().message(), "may still be staged");
      if (!says_may) {
        EXPECT_EQ(RowCount(), newest.ok() ? kNewestRows : kNewRows) << newest.status();
      }
      EXPECT_NE(RowCount(), kOldRows);
      older_taken += RowCount() == kNewRows;
      EXPECT_TRUE(ErrorOf(server_->Refresh()).ok());
      EXPECT_TRUE(NothingIsStaged());
    }
  }
  EXPECT_GT(older_taken, 0u);
}

// Catches: a load that says nothing of a damaged import because the disk keeps what is to be
// removed.
TEST_F(StagingFaultTest, ADamagedImportThatCannotBeRemovedIsReported) {
  for (const char* damaged : {".rows", "/manifest"}) {
    SCOPED_TRACE(damaged);
    OpenServer(Options(SyncMode::kNever));
    ASSERT_TRUE(Stage().ok());
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_.path("store") + "/staging")) {
      if (entry.path().string().ends_with(damaged))
        std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
    }
    disk_->Fail({.nth = 0, .sticky = true, .calls = kFileChange, .path_contains = "/manifest"});
    const auto refreshed = server_->Refresh();
    ASSERT_TRUE(refreshed.ok()) << refreshed.status();
    ASSERT_EQ(refreshed->waiting.size(), 1U);
    EXPECT_EQ(refreshed->waiting[0].why.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(NothingIsStaged());
    EXPECT_TRUE(server_->TakeRejectedImports("m").empty());
    disk_->Heal();
    EXPECT_TRUE(ErrorOf(server_->Refresh()).ok());
    EXPECT_TRUE(NothingIsStaged());
    EXPECT_EQ(server_->TakeRejectedImports("m").size(), 1U);
    EXPECT_TRUE(server_->Refresh().ok());
    EXPECT_TRUE(server_->TakeRejectedImports("m").empty());
    EXPECT_EQ(RowCount(), kOldRows);
  }
  server_.reset();
}

}  // namespace
}  // namespace hps
