// A store on a disk that is full, that fails single calls, or that loses power: statuses and no
// abort, reads go on, what was acknowledged stays, and all goes on when the disk is well again.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"
#include "testing/trials.h"
#include "tests/faults/failing_disk.h"
#include "tests/faults/store_run.h"

namespace hps {
namespace {

constexpr EventPlan kPlan = {.seed = 10, .import_every = 20};

template <typename Attempt>
testing::AssertionResult Retry(const Attempt& attempt) {
  absl::Status status;
  return AwaitCondition([&] { return (status = attempt()).ok(); }) << status;
}

// What fails of page files themselves: page_file_fault_test.
class DiskTest : public FailingDiskTest {
 protected:
  RocksStoreOptions Options() const { return FailingDiskTest::Options(SyncMode::kNever); }
  // Until the disk has failed more often: what the events gave RocksDB's threads to do may still
  // wait for one.
  testing::AssertionResult AwaitFailure(uint64_t failures_before) const {
    return AwaitCondition([&] { return disk_->failures() > failures_before; });
  }
  // REQUIRES: the store, if any, is closed.
  void ExpectNoDamage() const {
    RocksStoreOptions options = Options();
    options.mode = OpenMode::kReadOnly;
    const absl::StatusOr<VerifyReport> report = VerifyRocksStore(options, false, {});
    if (absl::IsNotFound(report.status())) return;  // it was never made
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->damage_count, 0u) << report->damage.front().what;
  }
};

// Runs the flow with `free_bytes` left on the disk; true when it met the full disk.
bool RunOnAFullDisk(StoreRun& run, FaultFileSystem& disk, uint64_t events) {
  absl::Status status = run.Open();
  const bool opened = status.ok();
  if (opened) status = run.DoEvents(events);
  if (!status.ok()) {
    EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) << status;
  }
  if (opened) {
    const absl::Status readable = run.Check();
    EXPECT_TRUE(readable.ok()) << "while the disk is full: " << readable;
  }
  disk.Heal();
  const bool was_full = !status.ok();
  if (!opened) status = run.Open();
  EXPECT_TRUE(opened || status.ok()) << "with free space again: " << status;
  return was_full;
}

// Row 10 of the matrix: at open, log write, flush, compaction and import, wherever the budget ends.
// Half a MiB stays free for the flushes of a quarter: the guard refuses in time what would fill the
// disk.
TEST_F(DiskTest, AFullDiskIsAStatusAndAllGoesOnWhenThereIsSpace) {
  constexpr uint64_t kEvents = 45;
  uint64_t full = 0;
  uint64_t trials = 0;
  for (uint64_t free_bytes = 0; free_bytes < 2'000'000; free_bytes += 60'000) {
    SCOPED_TRACE(absl::StrCat(free_bytes, " bytes free"));
    Clean();
    RocksStoreOptions options = Options();
    options.config.free_bytes_min = 512 << 10;
    StoreRun run(kPlan, options);
    disk_->SetFreeBytes(free_bytes);
    ++trials;
    full += RunOnAFullDisk(run, *disk_, kEvents) ? 1 : 0;
    ASSERT_TRUE(Retry([&] {
      const absl::Status status = run.DoEvents(3);
      // An import may have to wait for the next open.
      return status.ok() || kPlan.IsImport(run.state().events() + 1) ? run.Open() : status;
    }));
    ASSERT_TRUE(run.DoEvents(3).ok());
    ASSERT_TRUE(run.Check().ok());
    run.Close();
    ASSERT_TRUE(run.Open().ok());
    const absl::Status checked = run.Check();
    ASSERT_TRUE(checked.ok()) << checked;
    run.Close();
  }
  std::printf("full disk: %llu trials, %llu met it\n", static_cast<unsigned long long>(trials),
              static_cast<unsigned long long>(full));
  EXPECT_GT(full, trials / 4);
  EXPECT_LT(full, trials) << "the flow never fitted";
}

// Files that meet the full disk, the thread that writes them, and the number of events that write
// them for certain. Page files: page_file_fault_test.
struct FullPlace {
  const char* name;
  const char* path;
  const char* thread;
  uint64_t events_before;
  uint64_t events_during;
};
constexpr FullPlace kFullPlaces[] = {{"log", ".log", "", 2, 10},
                                     {"flush", ".sst", "rocksdb:high", 2, 60},
                                     {"compaction", ".sst", "rocksdb:low", 2, 150},
                                     {"manifest", "MANIFEST", "", 19, 2}};

// Row 10 again: each place fills up at some byte of it, and stays full for a while.
TEST_F(DiskTest, AFullDiskInEachPlaceIsAStatusAndWritingGoesOnInTheSameProcess) {
  const uint64_t trials = Trials(3);
  const EventPlan plan = {.seed = 10, .import_every = 200};  // an import would end compactions
  for (const FullPlace& place : kFullPlaces) {
    uint64_t met = 0;
    for (uint64_t trial = 0; trial < trials; ++trial) {
      SCOPED_TRACE(absl::StrCat(place.name, ", trial ", trial));
      Clean();
      StoreRun run(place.events_before == 19 ? kPlan : plan, Options());
      ASSERT_TRUE(run.Open().ok());
      ASSERT_TRUE(run.DoEvents(place.events_before).ok());
      const uint64_t before = disk_->failures();
      disk_->Fail({.nth = trial,
                   .sticky = true,
                   .calls = kFileAppend | kFileCreate,
                   .path_contains = place.path,
                   .thread_contains = place.thread,
                   .status = rocksdb::IOStatus::NoSpace("planned: no space left")});
      for (uint64_t i = 0; i < place.events_during && disk_->failures() == before; ++i)
        run.DoEvents(1).IgnoreError();
      if (*place.thread != '\0') {
        ASSERT_TRUE(AwaitFailure(before));
      }
      const absl::Status full = run.DoEvents(1);
      EXPECT_TRUE(full.ok() || absl::IsResourceExhausted(full)) << full;
      const absl::Status readable = run.Check();
      ASSERT_TRUE(readable.ok()) << "while the disk is full: " << readable;
      met += disk_->failures() > before ? 1 : 0;
      disk_->Heal();
      ASSERT_TRUE(Retry([&] { return run.DoEvents(1); }));
      ASSERT_TRUE(run.DoEvents(25).ok());
      ASSERT_TRUE(run.Check().ok());
      run.Close();
      ExpectNoDamage();
      ASSERT_TRUE(run.Open().ok());
      const absl::Status checked = run.Check();
      ASSERT_TRUE(checked.ok()) << checked;
      run.Close();
      // RocksDB's messages take no space in the store.
      EXPECT_FALSE(std::filesystem::exists(directory_.path("store") + "/LOG"));
    }
    EXPECT_EQ(met, trials) << place.name << ": not every trial met the full disk";
  }
}

// A file system of its own, of a few MiB.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& at) : at_(at) {
    std::filesystem::create_directory(at_);
    mounted_ = mount("none", at_.c_str(), "tmpfs", 0, "size=8m") == 0;
    if (!mounted_) why_not_ = std::strerror(errno);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) umount2(at_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& why_not() const { return why_not_; }

  // Fills the disk to the last byte; Free removes what fills it.
  void Fill() {
    std::ofstream file(at_ + "/filler", std::ios::binary);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void Free() { std::filesystem::remove(at_ + "/filler"); }

 private:
  const std::string at_;
  bool mounted_ = false;
  std::string why_not_;
};

TEST_F(DiskTest, AFullRealDiskIsAStatusToo) {
  const std::string at = directory_.path("small");
  SmallDisk small(at);
  if (!small.mounted()) GTEST_SKIP() << "no small tmpfs can be mounted: " << small.why_not();
  RocksStoreOptions options = TestStoreOptions(at + "/store");
  options.config.free_bytes_min = 512 << 10;
  StoreRun run(kPlan, options);
  ASSERT_TRUE(run.Open().ok());
  ASSERT_TRUE(run.DoEvents(5).ok());
  for (int round = 0; round < 3; ++round) {
    small.Fill();
    absl::Status full = absl::OkStatus();
    for (int i = 0; i < 200 && full.ok(); ++i) full = run.DoEvents(1);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    EXPECT_TRUE(run.Check().ok());
    small.Free();
    ASSERT_TRUE(Retry([&] { return run.DoEvents(3); }));
  }
  run.Close();
  ASSERT_TRUE(run.Open().ok());
  const absl::Status checked = run.Check();
  EXPECT_TRUE(checked.ok()) << checked;
}

// By the process that has the store, and by a command that opens it first.
TEST_F(DiskTest, ATableIsDroppedFromAFullRealDisk) {
  const std::string at = directory_.path("small");
  SmallDisk small(at);
  if (!small.mounted()) GTEST_SKIP() << "no small tmpfs can be mounted: " << small.why_not();
  RocksStoreOptions options = TestStoreOptions(at + "/store");
  options.config.free_bytes_min = 512 << 10;
  StoreRun run(kPlan, options);
  ASSERT_TRUE(run.Open().ok());
  ASSERT_TRUE(run.DoEvents(19).ok());
  small.Fill();
  const absl::Status in_process = run.store().Drop("m/a");
  EXPECT_TRUE(in_process.ok()) << in_process;
  small.Fill();
  run.Close();
  const absl::Status opened = run.Open();
  ASSERT_TRUE(opened.ok()) << opened;
  const absl::Status by_command = run.store().Drop("m/b");
  EXPECT_TRUE(by_command.ok()) << by_command;
  small.Free();
  ASSERT_TRUE(run.Open().ok());
  EXPECT_TRUE(run.store().Tables()->empty());
}

struct Flow {
  const char* name;
  uint64_t events_before;  // on a healthy disk
  bool reopens;            // the flow begins with an open
  uint64_t events;         // of the flow
};

// Writes with flushes; an import (event 20); an open.
constexpr Flow kFlows[] = {
    {"write", 2, false, 17}, {"import", 19, false, 1}, {"open", 12, true, 1}};

// One trial; returns the calls that matched the plan.
uint64_t RunWithFailure(DiskTest&, StoreRun& run, FaultFileSystem& disk, const Flow& flow,
                        const FileFaultPlan& plan) {
  EXPECT_TRUE(run.Open().ok());
  EXPECT_TRUE(run.DoEvents(flow.events_before).ok());
  if (flow.reopens) run.Close();
  disk.Fail(plan);
  absl::Status status = flow.reopens ? run.Open() : absl::OkStatus();
  if (status.ok()) status = run.DoEvents(flow.events);
  run.Close();
  const uint64_t calls = disk.matching_calls();
  disk.Heal();
  return calls;
}

// Row 11: the n-th call fails, once or from then on; n all over the flow.
TEST_F(DiskTest, AnyFileCallMayFail) {
  const uint64_t seed = TestSeed();
  const uint64_t trials = Trials(20);
  std::mt19937_64 random(seed);
  for (const Flow& flow : kFlows) {
    Clean();
    StoreRun counted(kPlan, Options());
    const uint64_t calls = RunWithFailure(*this, counted, *disk_, flow, {.nth = UINT64_MAX});
    ASSERT_GT(calls, 10u);
    uint64_t failures = 0;
    for (uint64_t trial = 0; trial < trials; ++trial) {
      // Background work makes the number of calls vary, by half.
      const uint64_t nth = random() % (calls / 2);
      const bool sticky = trial % 2 == 1;
      SCOPED_TRACE(absl::StrCat(flow.name, ": call ", nth, sticky ? " and all later" : ""));
      Clean();
      const uint64_t before = disk_->failures();
      StoreRun run(kPlan, Options());
      RunWithFailure(*this, run, *disk_, flow, {.nth = nth, .sticky = sticky});
      failures += disk_->failures() > before ? 1 : 0;
      ExpectNoDamage();
      const absl::Status opened = run.Open();
      ASSERT_TRUE(opened.ok()) << opened;
      const absl::Status checked = run.Check();
      ASSERT_TRUE(checked.ok()) << checked;
      ASSERT_TRUE(run.DoEvents(2).ok());
      ASSERT_TRUE(run.Check().ok());
      run.Close();
    }
    std::printf("%s: %llu file calls, %llu trials, %llu failed one\n", flow.name,
                static_cast<unsigned long long>(calls), static_cast<unsigned long long>(trials),
                static_cast<unsigned long long>(failures));
    EXPECT_GT(failures, trials / 4);
  }
}

// What was synced survives a power cut; what was not may be lost, but from the end only.
TEST_F(DiskTest, APowerCutTakesOnlyTheUnsyncedEnd) {
  std::mt19937_64 random(11);
  uint64_t lost = 0;
  for (int trial = 0; trial < 30; ++trial) {
    const SyncMode mode = trial % 2 == 0 ? SyncMode::kAlways : SyncMode::kNever;
    SCOPED_TRACE(absl::StrCat("trial ", trial));
    Clean();
    RocksStoreOptions options = Options();
    options.config.sync = mode;
    StoreRun run(kPlan, options);
    ASSERT_TRUE(run.Open().ok());
    const uint64_t events = 1 + random() % 45;
    ASSERT_TRUE(run.DoEvents(events).ok());
    disk_->CutPower();
    run.Close();
    ASSERT_TRUE(disk_->DropUnsynced().ok());
    ASSERT_TRUE(run.Open().ok());
    if (mode == SyncMode::kAlways) {
      const absl::Status checked = run.Check();
      ASSERT_TRUE(checked.ok()) << checked;
      continue;
    }
    // An import is always durable; the writes since then are there up to some point.
    uint64_t kept = events - events % kPlan.import_every;
    kept = kept == 0 ? 1 : kept;
    PlannedState state(kPlan);
    state.AdvanceTo(kept);
    while (!state.Compare(run.store()).ok() && kept <= events) state.AdvanceTo(++kept);
    ASSERT_LE(kept, events) << "the store holds no state that it ever had";
    lost += events - kept;
  }
  std::printf("power cuts: 30, %llu unsynced events lost\n", static_cast<unsigned long long>(lost));
  EXPECT_GT(lost, 0u) << "nothing was ever lost: is the cut real?";
}

}  // namespace
}  // namespace hps
