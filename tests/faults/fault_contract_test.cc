// The contract suites through the decorators of testing/faults/fault_tier.h: without a plan nothing
// changes, and with a planted defect the suite fails, so the suite would notice such a tier.
//
// HPS_TEST_PLANTED names a defect; the program then runs the suites with it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/contracts/durable_contract.h"
#include "testing/contracts/lossy_contract.h"
#include "testing/fakes/plain_tier.h"
#include "testing/faults/fault_tier.h"
#include "tests/faults/child_process.h"
#include "tests/faults/temporary_directory.h"
#include "tests/faults/test_fault_store.h"

namespace hps {
namespace {

struct Defect {
  TierOperation operation;
  TierFault fault;
  const char* suite;  // that must fail
};

const std::map<std::string, Defect>& Defects() {
  using enum TierOperation;
  static const std::map<std::string, Defect> defects = {
      {"updates_lost", {kUpdate, TierFault::kDrop, "Faulty/LossyTierContract.*"}},
      {"erases_lost", {kErase, TierFault::kDrop, "Faulty/LossyTierContract.*"}},
      {"fence_missing", {kRaiseWatermarks, TierFault::kDrop, "Faulty/LossyTierContract.*"}},
      {"lossy_rows_rot", {kFetch, TierFault::kCorrupt, "Faulty/LossyTierContract.*"}},
      {"inserted_rows_rot", {kInsert, TierFault::kCorrupt, "Faulty/LossyTierContract.*"}},
      {"writes_lost", {kWrite, TierFault::kDrop, "Faulty/DurableContractTest.*"}},
      {"durable_rows_rot", {kFetch, TierFault::kCorrupt, "Faulty/DurableContractTest.*"}},
      {"hits_told_absent", {kFetch, TierFault::kDrop, "Faulty/DurableContractTest.*"}},
      {"positions_lost", {kPositions, TierFault::kDrop, "Faulty/DurableContractTest.*"}},
      {"imports_lose_rows", {kImportAdd, TierFault::kDrop, "Faulty/DurableContractTest.*"}}};
  return defects;
}

// Lives as long as the program: every tier of the suites refers to it.
TierFaults* Faults() {
  static TierFaults faults;
  static const bool planted = [] {
    const char* name = std::getenv("HPS_TEST_PLANTED");
    if (name == nullptr) return false;
    const Defect& defect = Defects().at(name);
    faults.Plan(defect.operation, {.fault = defect.fault});
    return true;
  }();
  static_cast<void>(planted);
  return &faults;
}

INSTANTIATE_TEST_SUITE_P(
    Faulty, LossyTierContract,
    ::testing::Values(LossyTierFactory{
        .name = "plain",
        .make = [] { return WithFaults(std::make_unique<PlainLossyTier>(), Faults()); },
        .refuses_little = false}),
    LossyTierName);

class FaultyHarness final : public DurableHarness {
 public:
  absl::StatusOr<std::unique_ptr<DurableStore>> Open() override { return Open(OpenMode::kCreate); }
  absl::StatusOr<std::unique_ptr<DurableStore>> OpenReadOnly() override {
    return Open(OpenMode::kReadOnly);
  }

 private:
  absl::StatusOr<std::unique_ptr<DurableStore>> Open(OpenMode mode) {
    RocksStoreOptions options = TestStoreOptions(directory_.path("store"));
    options.mode = mode;
    HPS_ASSIGN_OR_RETURN(auto store, OpenRocksStore(options));
    return WithFaults(std::move(store), Faults());
  }

  const TemporaryDirectory directory_;
};

std::unique_ptr<DurableHarness> MakeFaultyHarness() { return std::make_unique<FaultyHarness>(); }

INSTANTIATE_TEST_SUITE_P(Faulty, DurableContractTest, ::testing::Values(&MakeFaultyHarness));

// Each planted defect makes its suite fail. The suite runs in a child: its failures are wanted.
TEST(PlantedDefectTest, EveryOneIsCaughtByTheContract) {
  if (std::getenv("HPS_TEST_PLANTED") != nullptr) GTEST_SKIP() << "this is the child";
  for (const auto& [name, defect] : Defects()) {
    auto child = ChildProcess::Start(
        "/bin/sh",
        {"-c", absl::StrCat("exec \"$0\" --gtest_filter='", defect.suite, "' >/dev/null 2>&1"),
         ProgramBesideThisOne("fault_contract_test")},
        {absl::StrCat("HPS_TEST_PLANTED=", name)});
    ASSERT_TRUE(child.ok()) << child.status();
    // One that hangs is ended with this program, by its runner's time-out.
    EXPECT_TRUE(child->WaitForEnd(kNoDeadline)) << name;
    EXPECT_TRUE(WIFEXITED(child->wait_status()) && WEXITSTATUS(child->wait_status()) == 1)
        << name << ": the contract did not notice, wait status " << child->wait_status();
  }
}

}  // namespace
}  // namespace hps
