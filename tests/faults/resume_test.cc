// Writing goes on in the same process once a disk works again, whatever failed on it and for how
// long: rows, positions, imports, and what a power cut may take afterwards.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"
#include "testing/trials.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/store_run.h"

namespace hps {
namespace {

// Frequent imports: they meet what an error has left behind in RocksDB.
constexpr EventPlan kPlan = {.seed = 12, .import_every = 9};

class ResumeTest : public FailingDiskTest {
 protected:
  // Some events on the failing disk; how many failed.
  static uint64_t DoEventsInVain(StoreRun& run) {
    uint64_t failures = 0;
    for (int i = 0; i < 30 && failures < 4; ++i) {
      const absl::Status status = run.DoEvents(1);
      if (status.ok()) continue;
      ++failures;
      EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) << status;
      const absl::Status readable = run.Check();
      EXPECT_TRUE(readable.ok()) << "while the disk fails: " << readable;
    }
    return failures;
  }
  static std::string TextOf(const FileFaultPlan& plan) {
    return absl::StrCat("'", plan.path_contains, "', calls ", plan.calls, ", call ", plan.nth,
                        plan.sticky ? " and all later, " : ", ", plan.status.ToString());
  }
};

TEST_F(ResumeTest, WritingGoesOnInTheSameProcessOnceTheDiskWorks) {
  const uint64_t seed = TestSeed();
  const uint64_t trials = Trials(40);
  uint64_t failed = 0;
  // Whether an event meets the fault depends on the seed: more trials, until a quarter have.
  const auto is_enough = [&] { return failed > trials / 4; };
  uint64_t trial = 0;
  for (; trial < trials || (trial < 10 * trials && !is_enough()); ++trial) {
    std::mt19937_64 random(seed + trial);
    const FileFaultPlan plan = AnyWriteFault(random);
    const SyncMode sync = random() % 2 == 0 ? SyncMode::kAlways : SyncMode::kNever;
    SCOPED_TRACE(absl::StrCat("seed ", seed + trial, ": ", TextOf(plan),
                              sync == SyncMode::kAlways ? ", sync always" : ""));
    Clean();
    StoreRun run(kPlan, Options(sync));
    ASSERT_TRUE(run.Open().ok());
    ASSERT_TRUE(run.DoEvents(1 + random() % 20).ok());
    disk_->Fail(plan);
    failed += DoEventsInVain(run) > 0 ? 1 : 0;
    ASSERT_FALSE(HasFailure());
    disk_->Heal();
    // Background work that had begun on the failing disk may report its error only now.
    absl::Status resumed = run.DoEvents(1);
    for (int late_errors = 0; !resumed.ok() && late_errors < 3; ++late_errors)
      resumed = run.DoEvents(1);
    if (resumed.ok()) resumed = run.DoEvents(25);
    ASSERT_TRUE(resumed.ok()) << "event " << run.state().events() + 1 << ": " << resumed;
    const absl::Status checked = run.Check();
    ASSERT_TRUE(checked.ok()) << checked;
    if (sync == SyncMode::kAlways) disk_->CutPower();
    run.Close();
    ASSERT_TRUE(sync != SyncMode::kAlways || disk_->DropUnsynced().ok());
    const absl::Status opened = run.Open();
    ASSERT_TRUE(opened.ok()) << opened;
    const absl::Status kept = run.Check();
    ASSERT_TRUE(kept.ok()) << "after a reopen: " << kept;
    run.Close();
  }
  std::printf("%llu trials, %llu failed an event\n", static_cast<unsigned long long>(trial),
              static_cast<unsigned long long>(failed));
  EXPECT_TRUE(is_enough());
}

// Catches: a mark of a MANIFEST that never came into CURRENT, with which no later opening agreed.
TEST_F(ResumeTest, AStoreThatIsClosedWhileTheDiskFailsOpensOnceItWorks) {
  const uint64_t seed = TestSeed();
  const uint64_t trials = Trials(40);
  for (uint64_t trial = 0; trial < trials; ++trial) {
    std::mt19937_64 random(seed + trial);
    FileFaultPlan plan = AnyWriteFault(random);
    plan.sticky = true;
    // In half of the trials, the MANIFEST alone can't be replaced.
    if (trial % 2 == 0) plan.path_contains = trial % 4 == 0 ? "dbtmp" : "CURRENT";
    if (trial % 2 == 0) plan.calls = kFileCreate | kFileAppend | kFileSync | kFileChange;
    SCOPED_TRACE(absl::StrCat("seed ", seed + trial, ": ", TextOf(plan)));
    Clean();
    StoreRun run(kPlan, Options(SyncMode::kNever));
    ASSERT_TRUE(run.Open().ok());
    ASSERT_TRUE(run.DoEvents(1 + random() % 20).ok());
    disk_->Fail({.nth = random() % 4, .calls = kFileAppend, .path_contains = "MANIFEST"});
    DoEventsInVain(run);  // RocksDB makes a new MANIFEST after such an error
    disk_->Fail(plan);
    DoEventsInVain(run);
    ASSERT_FALSE(HasFailure());
    run.Close();
    disk_->Heal();
    const absl::Status opened = run.Open();
    ASSERT_TRUE(opened.ok()) << opened;
    const absl::Status kept = run.Check();
    ASSERT_TRUE(kept.ok()) << "after a reopen: " << kept;
    run.Close();
  }
}

}  // namespace
}  // namespace hps
