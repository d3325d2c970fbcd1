// Row 12 of the fault matrix: the n-th allocation of hps' own code fails, once or from then on.
// What was asked says RESOURCE_EXHAUSTED, everything is as it was, and all goes on when there is
// memory.
//
// RocksDB's allocations never fail here: it is not safe against it (docs/operations.md, "Memory").
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "tests/faults/allocation_failure.h"
#include "tests/faults/one_table.h"
#include "tests/faults/temporary_directory.h"
#include "tests/faults/test_fault_store.h"
#include "tests/faults/trials.h"

namespace hps {
namespace {

constexpr uint64_t kRows = 300;
constexpr uint64_t kNewRows = 700;

class AllocationFaultTest : public testing::Test {
 protected:
  AllocationFaultTest() {
    SetLogLevel(LogLevel::kOff);
    auto opened = OpenRocksStore(TestStoreOptions(directory_.path("store")));
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    const TableSpec spec = OneTable();
    EXPECT_TRUE(FillOneTable(store_->BeginImport({&spec, 1}), kRows).ok());
  }
  ~AllocationFaultTest() override { SetLogLevel(LogLevel::kWarning); }

  // `attempt` with each of its allocations failing, and `check` after each.
  void FailEach(const std::function<absl::Status()>& attempt, const std::function<void()>& check) {
    uint64_t refused = 0;
    for (const bool sticky : {false, true}) {
      for (uint64_t nth = 0;; ++nth) {
        SCOPED_TRACE(absl::StrCat("allocation ", nth, sticky ? " and all later" : ""));
        FailAllocation(nth, sticky);
        CountMyAllocations(true);
        const absl::Status status = attempt();
        CountMyAllocations(false);
        const uint64_t failed = FailedAllocations();
        StopFailingAllocations();
        if (failed == 0) {
          EXPECT_TRUE(status.ok()) << status;
          break;
        }
        EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        refused += status.ok() ? 0 : 1;
        check();
        if (HasFatalFailure()) return;
      }
    }
    std::printf("%llu failed allocations refused what was asked\n",
                static_cast<unsigned long long>(refused));
    EXPECT_GT(refused, 0u);
  }
  void ExpectRows(DurableTable& table, Version version) {
    std::vector<Key> keys;
    for (uint64_t i = 0; i < kRows; ++i) keys.push_back(static_cast<Key>(i));
    const FetchedRows rows(table, keys);
    ASSERT_TRUE(rows.counts.ok()) << rows.counts.status();
    EXPECT_EQ(rows.counts->hits, kRows);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(rows.versions[i], version) << "key " << i;
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<DurableStore> store_;
};

TEST_F(AllocationFaultTest, AFetchFromTheStoreMissesNothingForGood) {
  auto table = store_->OpenTable("m/a");
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<Key> keys = {5, 1, 3};
  std::vector<std::byte> rows(keys.size() * (*table)->spec().row_bytes());
  std::vector<FetchOutcome> outcomes(keys.size());
  const HostRows to = {.data = rows.data(),
                       .row_count = keys.size(),
                       .row_bytes = (*table)->spec().row_bytes(),
                       .stride_bytes = (*table)->spec().row_bytes()};
  FailEach(
      [&] {
        return (*table)
            ->Fetch({.keys = keys, .rows = to, .outcomes = outcomes, .versions = {}}, kNoDeadline)
            .status();
      },
      [&] {
        for (const FetchOutcome outcome : outcomes) {
          EXPECT_TRUE(outcome == FetchOutcome::kMiss || outcome == FetchOutcome::kHit);
        }
        ExpectRows(**table, 0);
      });
}

TEST_F(AllocationFaultTest, AWriteIsWholeOrNotThere) {
  auto table = store_->OpenTable("m/a");
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<Key> keys;
  for (uint64_t i = 0; i < kRows; ++i) keys.push_back(static_cast<Key>(i));
  Version version = 1;
  Version written = 0;
  FailEach(
      [&] {
        CountMyAllocations(false);  // not those of the test
        StampedRows rows(1, (*table)->spec().row_bytes(), keys, version);
        const std::vector<StreamPosition> positions = {{0, 1, version}};
        CountMyAllocations(true);
        const absl::Status status = (*table)->Write({rows.batch(), {}, positions});
        CountMyAllocations(false);
        if (status.ok()) written = version;
        ++version;
        return status;
      },
      [&] {
        ExpectRows(**table, written);
        const auto positions = (*table)->Positions();
        ASSERT_TRUE(positions.ok());
        EXPECT_EQ(positions->empty() ? 0 : positions->at(0).offset, written);
      });
}

TEST_F(AllocationFaultTest, AnImportThatLacksMemoryChangesNothing) {
  const TableSpec spec = OneTable();
  std::vector<Key> keys;
  for (uint64_t i = 0; i < kNewRows; ++i) keys.push_back(static_cast<Key>(i));
  FailEach(
      [&] {
        CountMyAllocations(false);
        StampedRows rows(1, spec.row_bytes(), keys);
        CountMyAllocations(true);
        auto import = store_->BeginImport({&spec, 1});
        if (!import.ok()) return import.status();
        return (*import)->Add(0, 0, rows.keys(), rows.rows());
      },
      [&] {
        ASSERT_EQ(store_->Tables()->at(0).row_count, kRows);
        ASSERT_TRUE(store_->Refresh().ok());  // removes what was left for want of memory
        EXPECT_TRUE(std::filesystem::is_empty(directory_.path("store") + "/staging"));
      });
  ASSERT_TRUE(FillOneTable(store_->BeginImport({&spec, 1}), kNewRows).ok());
  EXPECT_EQ(store_->Tables()->at(0).row_count, kNewRows);
}

}  // namespace
}  // namespace hps
