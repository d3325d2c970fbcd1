// Imports on a disk that fails at any call: the table is as it was, or the import is there, whole.
#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tests/faults/fault_file_system.h"
#include "tests/faults/temporary_directory.h"
#include "tests/faults/test_store.h"
#include "tests/faults/trials.h"
#include "tier/stamped_rows.h"

namespace hps {
namespace {

constexpr uint32_t kDim = 8;
constexpr uint64_t kOldRows = 100;
constexpr uint64_t kNewRows = 200;

class StagingFaultTest : public testing::Test {
 protected:
  StagingFaultTest() { SetLogLevel(LogLevel::kOff); }
  ~StagingFaultTest() override { SetLogLevel(LogLevel::kWarning); }

  RocksStoreOptions Options(OwnerRole role) const {
    RocksStoreOptions options = TestStoreOptions(directory_.path("store"));
    options.role = role;
    return options;
  }
  void OpenServer() {
    server_.reset();
    std::filesystem::remove_all(directory_.path("store"));
    auto opened = OpenRocksStore(Options(OwnerRole::kServer));
    ASSERT_TRUE(opened.ok()) << opened.status();
    server_ = *std::move(opened);
    const TableSpec spec{.name = "m/a", .dim = kDim};
    const absl::Status imported = Fill(server_->BeginImport({&spec, 1}), kOldRows).status();
    ASSERT_TRUE(imported.ok()) << imported;
  }
  // As a command does it beside the server, on the disk that fails.
  absl::StatusOr<BulkImport::Result> Stage() {
    RocksStoreOptions options = Options(OwnerRole::kCommand);
    options.env = env_.get();
    const TableSpec spec{.name = "m/a", .dim = kDim};
    return Fill(StageImport(options, {&spec, 1}), kNewRows);
  }
  static absl::StatusOr<BulkImport::Result> Fill(absl::StatusOr<std::unique_ptr<BulkImport>> import,
                                                 uint64_t row_count) {
    HPS_RETURN_IF_ERROR(import.status());
    std::vector<Key> keys;
    for (uint64_t i = 0; i < row_count; ++i) keys.push_back(static_cast<Key>(i));
    StampedRows rows(1, kDim * 4, keys);
    HPS_RETURN_IF_ERROR((*import)->Add(0, 0, rows.keys(), rows.rows()));
    return (*import)->Commit();
  }
  uint64_t RowCount() const { return server_->Tables()->at(0).row_count; }
  bool NothingIsStaged() const {
    return std::filesystem::is_empty(directory_.path("store") + "/staging");
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<FaultFileSystem> disk_ = std::make_shared<FaultFileSystem>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
  std::unique_ptr<DurableStore> server_;
};

// Catches: an import that failed after its manifest had its name, and whose files were then removed
// under the server that had begun to take it.
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
      const auto changed = server_->Refresh();
      ASSERT_TRUE(changed.ok()) << changed.status();
      const bool says_may =
          absl::StrContains(staged.status().message(), "may be left staged all the same");
      if (!says_may) {
        EXPECT_EQ(*changed, staged.ok()) << staged.status();
      }
      EXPECT_EQ(RowCount(), *changed ? kNewRows : kOldRows);
      // What a failed removal left goes with the next look.
      EXPECT_TRUE(server_->Refresh().ok());
      EXPECT_TRUE(NothingIsStaged());
    }
  }
  std::printf("%llu calls, %llu of 2 x %llu imports failed\n",
              static_cast<unsigned long long>(call_count), static_cast<unsigned long long>(failed),
              static_cast<unsigned long long>(trials));
  EXPECT_GT(failed, trials);
}

}  // namespace
}  // namespace hps
