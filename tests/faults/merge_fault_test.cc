// Merges of changes into new page files, and writes meanwhile, on a disk that fails at any call
// that writes: every acknowledged row stays, also after a power cut, and merges succeed again.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"
#include "testing/fakes/stamped_rows.h"
#include "testing/faults/fault_points.h"
#include "testing/trials.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/one_table.h"

namespace hps {
namespace {

constexpr uint64_t kRowCount = 60;

class MergeFaultTest : public FailingDiskTest {
 protected:
  RocksStoreOptions MergingOptions() const {
    RocksStoreOptions options = Options(SyncMode::kAlways);
    options.role = OwnerRole::kServer;
    options.merge_keys_min = 1;
    options.merge_retry = std::chrono::milliseconds(2);
    options.config.merge_share = 0.001;
    return options;
  }
  void Open() {
    Close();
    auto store = OpenRocksStore(MergingOptions());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto table = store_->OpenTable("m/a");
    if (table.ok()) table_ = *std::move(table);
  }
  void Close() {
    table_.reset();
    store_.reset();
  }
  void Import() {
    Open();
    const TableSpec spec = OneTable();
    ASSERT_TRUE(FillOneTable(store_->BeginImport({&spec, 1}), kRowCount).ok());
    table_ = *store_->OpenTable("m/a");
    versions_.clear();
    for (uint64_t key = 0; key < kRowCount; ++key) versions_[static_cast<Key>(key)] = {0};
  }
  // Writes one row. What a failed write leaves is seen or not.
  bool Write(Key key) {
    StampedRows rows(1, OneTable().row_bytes(), {key}, ++version_);
    const std::vector<StreamPosition> positions = {{0, 1, version_}};
    const absl::Status written = table_->Write({rows.batch(), {}, positions});
    if (written.ok()) versions_[key].clear();
    versions_[key].insert(version_);
    return written.ok();
  }
  void ExpectRows() {
    std::vector<Key> keys;
    for (const auto& [key, versions] : versions_) keys.push_back(key);
    const FetchedRows fetched(*table_, keys);
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(fetched.outcomes[i], FetchOutcome::kHit) << keys[i];
      ASSERT_TRUE(versions_[keys[i]].contains(fetched.versions[i]))
          << "key " << keys[i] << " has version " << fetched.versions[i] << ", expected "
          << *versions_[keys[i]].begin();
      ASSERT_TRUE(StampedRow::Matches(1, keys[i], fetched.versions[i], fetched.row(i)));
    }
  }
  testing::AssertionResult AwaitMerge() {
    const uint64_t before = store_->Statistics().merges;
    return AwaitCondition([&] { return store_->Statistics().merges > before; });
  }

  // For a short time, so that writes meet merges at each of their steps.
  void LetMerge() {
    const uint64_t before = store_->Statistics().merges;
    HoldsInTime([&] { return store_->Statistics().merges > before; }, std::chrono::milliseconds(2));
  }

  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
  Version version_ = 0;
  std::map<Key, std::set<Version>> versions_;  // that a key may have
};

TEST_F(MergeFaultTest, LosesNothingAcknowledged) {
  const uint64_t seed = TestSeed(31);
  std::mt19937_64 random(seed);
  uint64_t merges = 0;
  uint64_t merges_failed = 0;
  uint64_t writes_failed = 0;
  const uint64_t trials = Trials(40);
  // How many merges meet a failing disk depends on the scheduler: more trials, if there was none.
  const auto is_enough = [&] { return merges_failed > 0 && writes_failed > 0; };
  for (uint64_t trial = 0; trial < trials || (trial < 10 * trials && !is_enough()); ++trial) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", trial " << trial);
    Clean();
    ASSERT_NO_FATAL_FAILURE(Import());
    disk_->Fail(AnyWriteFault(random));
    const uint64_t healed_at = 4 + random() % 12;
    for (uint64_t i = 0; i < 20; ++i) {
      if (i == healed_at) disk_->Heal();
      const Key key = static_cast<Key>(random() % kRowCount);
      if (!Write(key)) ++writes_failed;
      if (random() % 4 == 0) LetMerge();
    }
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    if (random() % 2 == 0) {
      bool written = false;
      for (int late_errors = 0; !written && late_errors < 4; ++late_errors) written = Write(7);
      ASSERT_TRUE(written) << "writes fail on a healthy disk";
      ASSERT_TRUE(AwaitMerge());
      ASSERT_NO_FATAL_FAILURE(ExpectRows());
    }
    merges += store_->Statistics().merges;
    merges_failed += store_->Statistics().merges_failed;
    disk_->CutPower();
    Close();
    disk_->Heal();
    ASSERT_TRUE(disk_->DropUnsynced().ok());
    Open();
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    Close();
    const auto report = VerifyRocksStore(MergingOptions(), false, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->damage_count, 0u);
  }
  std::printf("%llu merges, %llu failed merges, %llu failed writes\n",
              static_cast<unsigned long long>(merges),
              static_cast<unsigned long long>(merges_failed),
              static_cast<unsigned long long>(writes_failed));
  EXPECT_GT(merges, trials / 4);
  EXPECT_GT(merges_failed, 0u);
  EXPECT_GT(writes_failed, 0u);
}

// The switch may be in the log, and it can't be undone, because the disk fails. Writes go on when
// the disk works again, and a later merge succeeds; or the store is closed before.
class UnknownSwitchTest : public MergeFaultTest {
 protected:
  // False: the store knew before the switch that the disk fails.
  bool ReachesSwitch() {
    FaultPoints::Arm("l3.merge.before_switch", {.action = FaultAction::kWait, .times = 1});
    EXPECT_TRUE(Write(1));
    EXPECT_TRUE(AwaitCondition([] { return FaultPoints::IsWaiting("l3.merge.before_switch"); }));
    EXPECT_TRUE(Write(2));
    disk_->Fail({.sticky = true, .calls = kFileAppend | kFileSync, .path_contains = ".log"});
    FaultPoints::Arm("l3.merge.in_switch", {.action = FaultAction::kFail, .times = 1});
    FaultPoints::Disarm("l3.merge.before_switch");
    const auto is_reached = [] { return FaultPoints::Arrivals()["l3.merge.in_switch"] > 0; };
    EXPECT_TRUE(
        AwaitCondition([&] { return is_reached() || store_->Statistics().merges_failed > 0; }));
    EXPECT_FALSE(Write(3));
    EXPECT_EQ(store_->Statistics().merges, 0u);
    return is_reached();
  }
};

TEST_F(UnknownSwitchTest, LosesNothingAcknowledged) {
  std::map<bool, int> reached;
  for (int trial = 0; trial < 40; ++trial) {
    const bool closes = trial % 2 == 1;
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    Clean();
    ASSERT_NO_FATAL_FAILURE(Import());
    reached[closes] += ReachesSwitch() ? 1 : 0;
    if (closes) Close();
    disk_->Heal();
    FaultPoints::DisarmAll();
    if (closes) Open();
    bool written = false;
    for (int late_errors = 0; !written && late_errors < 4; ++late_errors) written = Write(4);
    ASSERT_TRUE(written);
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    ASSERT_TRUE(AwaitCondition([&] { return store_->Statistics().merges > 0; }));
    ASSERT_TRUE(Write(5));
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    Open();
    ASSERT_NO_FATAL_FAILURE(ExpectRows());
    Close();
    if (reached[false] > 0 && reached[true] > 0) break;
  }
  EXPECT_GT(reached[false], 0);
  EXPECT_GT(reached[true], 0);
}

}  // namespace
}  // namespace hps
