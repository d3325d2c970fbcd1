// Writers, an importer and a reader beside each other on a disk that fails again and again: reads
// go on, rows never go back, and everybody goes on once the disk works. Who hangs makes the test
// wait until its runner's time-out ends it: how long a step takes is the machine's business.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/fakes/stamped_rows.h"
#include "testing/trials.h"
#include "tests/faults/failing_disk.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 256;
constexpr size_t kWriterCount = 2;
constexpr std::array<const char*, kWriterCount> kTables = {"m/a", "m/b"};
constexpr const char* kImported = "m/c";

std::vector<Key> Keys() {
  std::vector<Key> keys;
  for (Key key = 0; key < 64; ++key) keys.push_back(key);
  return keys;
}

// What a disk's fault is given to be met: so many failures, or so many writes of each writer past
// it. Not a time, in which a busy machine may do nothing.
constexpr uint64_t kFailuresOfAFault = 3;
constexpr uint64_t kWritesPastAFault = 40;

constexpr Duration kFailureInterval = std::chrono::seconds(1);
constexpr Duration kWordInterval = std::chrono::seconds(30);

// What the threads of a run have done, and a way to wait for it.
class Progress {
 public:
  void NoteDone(size_t who) { Note(done_[who]); }
  void NoteFailure() { Note(failures_); }
  uint64_t failures() const {
    MutexLock lock(mutex_);
    return failures_;
  }
  std::vector<uint64_t> done() const {
    MutexLock lock(mutex_);
    return {done_.begin(), done_.end()};
  }
  // Returns early when the test has failed: a thread that did so may have ended. Tells what it
  // waits for now and then, since a test that is timed out tells nothing afterwards.
  template <typename Condition>
  void WaitFor(const std::string& what, const Condition& is_met) const {
    MutexLock lock(mutex_);
    Deadline next_word = DeadlineAfter(RealClock(), kWordInterval);
    while (!is_met(done_, failures_) && !testing::Test::HasFailure()) {
      static_cast<void>(changed_.WaitUntil(mutex_, DeadlineAfter(RealClock(), kFailureInterval)));
      if (RealClock().Now() < next_word) continue;
      std::printf("still waiting %s; %llu failures; done: %s\n", what.c_str(),
                  static_cast<unsigned long long>(failures_), absl::StrJoin(done_, ", ").c_str());
      std::fflush(stdout);
      next_word = DeadlineAfter(RealClock(), kWordInterval);
    }
  }

 private:
  void Note(uint64_t& count) {
    {
      MutexLock lock(mutex_);
      ++count;
    }
    changed_.NotifyAll();
  }

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::array<uint64_t, kWriterCount + 1> done_{};  // by writer, then the importer
  uint64_t failures_ = 0;
};

class ResumeRaceTest : public FailingDiskTest {
 protected:
  absl::Status Import(std::span<const TableSpec> specs) {
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<BulkImport> import, store_->BeginImport(specs));
    for (size_t table = 0; table < specs.size(); ++table) {
      StampedRows rows(table, kRowBytes, Keys());
      HPS_RETURN_IF_ERROR(import->Add(table, 0, rows.keys(), rows.rows()));
    }
    return import->Commit().status();
  }
  void NoteFailure(const absl::Status& status) {
    EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) << status;
    progress_.NoteFailure();
  }
  // Writes one version of all rows after the other; a failed one again.
  void WriteAlong(size_t writer) {
    const auto table = store_->OpenTable(kTables[writer]);
    ASSERT_TRUE(table.ok());
    while (!stops_) {
      StampedRows rows(writer, kRowBytes, Keys(), acknowledged_[writer] + 1);
      const absl::Status written = (*table)->Write({rows.batch(), {}, {}});
      if (written.ok()) {
        ++acknowledged_[writer];
        progress_.NoteDone(writer);
      } else {
        NoteFailure(written);
      }
    }
  }
  void ImportAlong() {
    const TableSpec spec = {.name = kImported, .dim = kRowBytes / 4};
    while (!stops_) {
      const absl::Status imported = Import({&spec, 1});
      if (imported.ok()) {
        progress_.NoteDone(kWriterCount);
      } else {
        NoteFailure(imported);
      }
    }
  }
  // Rows are whole, and never older than before.
  void ReadAlong() {
    std::array<std::vector<Version>, kWriterCount> seen;
    seen.fill(std::vector<Version>(Keys().size(), 0));
    while (!stops_) {
      for (size_t number = 0; number < kWriterCount; ++number) ReadOnce(number, seen[number]);
    }
  }
  void ReadOnce(size_t number, std::vector<Version>& seen) {
    const auto table = store_->OpenTable(kTables[number]);
    ASSERT_TRUE(table.ok()) << table.status();
    const FetchedRows fetched(**table, Keys());
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    ASSERT_EQ(fetched.counts->hits, seen.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      ASSERT_TRUE(
          StampedRow::Matches(number, fetched.keys[i], fetched.versions[i], fetched.row(i)));
      ASSERT_GE(fetched.versions[i], seen[i]);
      seen[i] = fetched.versions[i];
    }
  }
  void Open() {
    auto store = OpenRocksStore(Options(SyncMode::kAlways));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // The disk fails, then works again, and all threads get on.
  void FailForAWhile(std::mt19937_64& random) {
    const FileFaultPlan plan = AnyWriteFault(random);
    const std::string fault =
        absl::StrCat("'", plan.path_contains, "', calls ", plan.calls, ", call ", plan.nth,
                     plan.sticky ? " and all later, " : ", ", plan.status.ToString());
    SCOPED_TRACE(fault);
    const uint64_t failures = progress_.failures();
    std::vector<uint64_t> before = progress_.done();
    disk_->Fail(plan);
    progress_.WaitFor(absl::StrCat("for the fault ", fault), [&](const auto& done, uint64_t now) {
      if (now >= failures + kFailuresOfAFault) return true;
      for (size_t i = 0; i < kWriterCount; ++i)
        if (done[i] < before[i] + kWritesPastAFault) return false;
      return true;
    });
    disk_->Heal();
    before = progress_.done();
    progress_.WaitFor(absl::StrCat("for all to go on after ", fault,
                                   "; done before: ", absl::StrJoin(before, ", ")),
                      [&](const auto& done, uint64_t) {
                        for (size_t i = 0; i < before.size(); ++i)
                          if (done[i] < before[i] + 2) return false;
                        return true;
                      });
  }

  std::unique_ptr<DurableStore> store_;
  Progress progress_;
  std::atomic<bool> stops_{false};
  std::array<std::atomic<Version>, kWriterCount> acknowledged_{};
};

TEST_F(ResumeRaceTest, EverybodyGoesOnOnceTheDiskWorks) {
  const uint64_t seed = TestSeed();
  const uint64_t rounds = Trials(25);
  std::mt19937_64 random(seed);
  Open();
  std::vector<TableSpec> specs;
  for (const char* name : kTables) specs.push_back({.name = name, .dim = kRowBytes / 4});
  ASSERT_TRUE(Import(specs).ok());
  std::vector<std::thread> threads;
  for (size_t writer = 0; writer < kWriterCount; ++writer)
    threads.emplace_back([this, writer] { WriteAlong(writer); });
  threads.emplace_back([this] { ImportAlong(); });
  threads.emplace_back([this] { ReadAlong(); });
  // Whether a writer meets the fault depends on the seed: more rounds, until a quarter have
  // failures.
  const auto is_enough = [&] { return progress_.failures() > rounds / 4; };
  for (uint64_t round = 0; round < rounds || (round < 10 * rounds && !is_enough()); ++round) {
    if (HasFailure()) break;
    FailForAWhile(random);
  }
  stops_ = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%llu failures; done: %s\n", static_cast<unsigned long long>(progress_.failures()),
              absl::StrJoin(progress_.done(), ", ").c_str());
  EXPECT_TRUE(is_enough());
  disk_->CutPower();
  store_.reset();
  ASSERT_TRUE(disk_->DropUnsynced().ok());
  Open();
  for (size_t number = 0; number < kWriterCount; ++number) {
    std::vector<Version> acknowledged(Keys().size(), acknowledged_[number]);
    ReadOnce(number, acknowledged);
  }
}

}  // namespace
}  // namespace hps
