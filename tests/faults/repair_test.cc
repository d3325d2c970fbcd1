// A repair on a disk that fails: an I/O error is no damage, so it ends the repair, and nothing that
// is intact is removed.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/fakes/stamped_rows.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/one_table.h"

namespace hps {
namespace {

constexpr Key kRows = 2000;

class RepairTest : public FailingDiskTest {
 protected:
  RocksStoreOptions Options() const { return FailingDiskTest::Options(SyncMode::kNever); }

  // Imports m/a with a network, and n/a with one that is then damaged. Changes all rows of m/a, and
  // damages a block of the changes.
  void MakeDamagedStore() {
    {
      const auto store = OpenRocksStore(Options());
      ASSERT_TRUE(store.ok()) << store.status();
      for (const std::string model : {"m", "n"}) {
        const TableSpec spec = {.name = model + "/a", .dim = OneTable().dim};
        auto import = (*store)->BeginImport({&spec, 1});
        ASSERT_TRUE(import.ok()) << import.status();
        ModelNetwork network{.onnx = std::string(50'000, 'x')};
        network.digest = NetworkDigest(network);
        ASSERT_TRUE((*import)->SetNetwork(model, network).ok());
        const auto filled = FillOneTable(std::move(import), kRows);
        ASSERT_TRUE(filled.ok()) << filled.status();
      }
      StampedRows rows(1, OneTable().row_bytes(), AllKeys(), 5);
      ASSERT_TRUE((*(*store)->OpenTable("m/a"))->Write({.upserts = rows.batch()}).ok());
    }
    std::map<std::string, std::string> files;  // by column family
    {
      const auto database = Database::Open(Options());  // which writes the log to table files
      ASSERT_TRUE(database.ok()) << database.status();
      std::vector<rocksdb::LiveFileMetaData> live;
      (*database)->db().GetLiveFilesMetaData(&live);
      for (const auto& file : live) files[file.column_family_name] = file.relative_filename;
      const CatalogContents catalog = (*database)->catalog().contents();
      changes_ = files[FamilyName(FamilyId{catalog.tables.at("m/a").incarnation})];
      network_ = files[NetworkFamilyName(catalog.networks.at("n").id)];
    }
    for (const std::string& name : {changes_, network_}) {
      std::fstream stream(directory_.path("store/") + name,
                          std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(20'000);
      stream.put('\x5a').put('\x5a');
      ASSERT_TRUE(stream.good()) << name;
    }
  }
  static std::vector<Key> AllKeys() {
    std::vector<Key> keys;
    for (Key key = 0; key < kRows; ++key) keys.push_back(key);
    return keys;
  }

  absl::StatusOr<VerifyReport> Verify(bool repair) {
    return VerifyRocksStore(Options(), repair, {});
  }

  // Keys of m/a that are answered lost; every other one must be a hit with its new row. The network
  // of m must be there.
  size_t LostCount() {
    RocksStoreOptions options = Options();
    options.mode = OpenMode::kReadOnly;
    const auto store = OpenRocksStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto network = (*store)->Network("m");
    EXPECT_TRUE(network.ok() && network->has_value()) << network.status();
    const auto table = (*store)->OpenTable("m/a");
    EXPECT_TRUE(table.ok()) << table.status();
    const FetchedRows fetched(**table, AllKeys());
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    size_t lost = 0;
    for (size_t i = 0; i < fetched.keys.size(); ++i) {
      lost += fetched.outcomes[i] == FetchOutcome::kLost;
      EXPECT_NE(fetched.outcomes[i], FetchOutcome::kAbsent) << "key " << fetched.keys[i];
      if (fetched.outcomes[i] == FetchOutcome::kHit) {
        EXPECT_EQ(fetched.versions[i], 5u);
      }
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
    const std::vector<std::string> damaged = {"n"};
    if (report.ok()) {
      EXPECT_EQ(report->networks_removed, damaged);
    } else {
      EXPECT_FALSE(absl::IsDataLoss(report.status())) << report.status();
    }
    EXPECT_EQ(LostCount(), lost);
    const absl::StatusOr<VerifyReport> again = Verify(true);
    ASSERT_TRUE(again.ok()) << again.status();
    // The repair may have failed behind the removal.
    EXPECT_TRUE(again->networks_removed.empty() ||
                (trial.failed && again->networks_removed == damaged));
    EXPECT_GT(again->damage_count, 0u) << "the changes stay damaged";
    EXPECT_EQ(LostCount(), lost);
    std::filesystem::remove_all(directory_.path("store"));
    std::filesystem::rename(whole, directory_.path("store"));
  }

  std::string changes_;  // the table file with the changes of m/a
  std::string network_;  // the one with the network of n
};

// Catches: EIO, EMFILE and the like taken for damage, an intact network that is removed for good,
// and a row that an older one replaces.
TEST_F(RepairTest, AnIoErrorAtAnyCallRemovesNothingIntact) {
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
