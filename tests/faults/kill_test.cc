// Writers and importers that die at any moment: what was acknowledged is there, whole, and nothing
// else is.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "testing/trials.h"
#include "tests/faults/child_process.h"
#include "tests/faults/kill_harness.h"
#include "tests/faults/test_fault_store.h"

namespace hps {
namespace {

constexpr uint64_t kKills = 400;
uint64_t Seed() { return TestSeed(20); }

struct KillCase {
  const char* name;
  EventPlan plan;
  const char* sync;
  uint64_t share_percent;  // of the kills
  int64_t life_us_max;
};

class KillTest : public testing::TestWithParam<KillCase> {};

TEST_P(KillTest, LosesNothingAcknowledged) {
  const KillCase& test_case = GetParam();
  std::mt19937_64 random(Seed());
  KillHarness harness(test_case.plan, test_case.sync);
  const uint64_t kills = Trials(kKills * test_case.share_percent / 100);
  for (uint64_t i = 0; i < kills; ++i) {
    const std::chrono::microseconds life(random() % test_case.life_us_max);
    // Where a machine is so slow that the others die before they have opened the store, some live.
    const absl::Status ran = harness.RunAndKill(life, i % 8 == 0 ? 1 : 0);
    ASSERT_TRUE(ran.ok()) << ran;
    const absl::Status checked = harness.Check();
    ASSERT_TRUE(checked.ok()) << "seed " << Seed() << ", kill " << i << " after " << life.count()
                              << " us: " << checked;
  }
  const KillCounts& counts = harness.counts();
  std::printf("%s: %llu kills, %llu events acknowledged, %llu carried over; seed %llu\n",
              test_case.name, static_cast<unsigned long long>(counts.deaths),
              static_cast<unsigned long long>(counts.acknowledged),
              static_cast<unsigned long long>(counts.carried),
              static_cast<unsigned long long>(Seed()));
  EXPECT_EQ(counts.deaths, kills);
  EXPECT_GE(counts.acknowledged, (kills + 7) / 8) << "children died before they had done anything";
}

INSTANTIATE_TEST_SUITE_P(
    All, KillTest,
    testing::Values(
        KillCase{"WritesSyncedNever", {.seed = 1}, "never", 20, 90'000},
        KillCase{"WritesSyncedByInterval", {.seed = 2}, "interval", 10, 90'000},
        KillCase{"WritesSyncedAlways", {.seed = 3}, "always", 10, 90'000},
        KillCase{"Imports", {.seed = 4, .import_every = 1}, "never", 30, 200'000},
        KillCase{"Mixed", {.seed = 5, .import_every = 4, .drop_every = 7}, "never", 30, 200'000},
        KillCase{"Merges", {.seed = 10, .import_every = 20, .merges = true}, "never", 5, 200'000}),
    [](const auto& test) { return std::string(test.param.name); });

// Catches: processes that a killed test leaves behind.
TEST(ChildProcessTest, EndsWithItsParent) {
  std::array<int, 2> held{};
  ASSERT_EQ(pipe(held.data()), 0);  // for the child's child too
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const auto child = ChildProcess::Start("/bin/sleep", {"1000000"}, {});
    if (child.ok() && write(held[1], "s", 1) == 1) pause();
    _exit(EXIT_FAILURE);
  }
  close(held[1]);
  char started = 0;
  EXPECT_EQ(read(held[0], &started, 1), 1);
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  pollfd ended{.fd = held[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ended, 1, 60'000), 1) << "it still holds the pipe";
  close(held[0]);
}

// The harness must notice a store that acknowledges what it has not done...
TEST(KillHarnessTest, NoticesEventsThatWereAcknowledgedTooEarly) {
  KillHarness harness({.seed = 6}, "never");
  ASSERT_TRUE(harness.RunDefective(10, "early").ok());
  EXPECT_EQ(harness.Check().code(), absl::StatusCode::kInternal);
}

// ... and one that leaves half a batch.
TEST(KillHarnessTest, NoticesHalfABatch) {
  KillHarness harness({.seed = 7}, "never");
  ASSERT_TRUE(harness.RunDefective(10, "torn").ok());
  EXPECT_EQ(harness.Check().code(), absl::StatusCode::kInternal);
}

// The fault points that a clean run passes, with how often.
std::map<std::string, uint64_t> RecordPoints(const EventPlan& plan, uint64_t events) {
  KillHarness harness(plan, "interval");
  const std::string file = harness.path("points");
  const auto ending = harness.RunToEnd(events, {absl::StrCat("HPS_TEST_RECORD=", file)});
  EXPECT_TRUE(ending.ok() && !ending->killed && ending->exit_code == 0) << ending.status();
  EXPECT_TRUE(harness.Check().ok());
  std::map<std::string, uint64_t> points;
  std::ifstream in(file);
  std::string name;
  uint64_t count = 0;
  while (in >> name >> count) points[name] = count;
  return points;
}

// The names of the fault points in the sources of the store.
std::set<std::string> PointsInSource() {
  std::set<std::string> points;
  const std::regex pattern("HPS_FAULT_POINT\\(\"(l3\\.[^\"]+)\"\\)");
  for (const char* folder : {"/src/l3_rocksdb", "/src/l3_pages"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::string(HPS_SOURCE_DIRECTORY) + folder)) {
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      const std::string source = text.str();
      for (std::sregex_iterator it(source.begin(), source.end(), pattern), end; it != end; ++it)
        points.insert((*it)[1]);
    }
  }
  return points;
}

constexpr uint64_t kPointEvents = 24;
constexpr EventPlan kPointPlan = {.seed = 8, .import_every = 6, .drop_every = 9};

// Dies at three of the arrivals at each point, then goes on.
TEST(FaultPointKillTest, EveryStepMayBeTheLast) {
  const std::map<std::string, uint64_t> points = RecordPoints(kPointPlan, kPointEvents);
  ASSERT_FALSE(points.empty());
  uint64_t deaths = 0;
  for (const auto& [name, count] : points) {
    for (const uint64_t skipped : std::set<uint64_t>{0, count / 2, count - 1}) {
      KillHarness harness(kPointPlan, "interval");
      const std::string arm = absl::StrCat("HPS_FAULT_ARM=", name, "=abort@", skipped);
      const auto ending = harness.RunToEnd(kPointEvents, {arm});
      ASSERT_TRUE(ending.ok()) << arm << ": " << ending.status();
      EXPECT_TRUE(ending->killed) << arm << " was not reached";
      const absl::Status checked = harness.Check();
      EXPECT_TRUE(checked.ok()) << arm << ": " << checked;
      const auto next = harness.RunToEnd(8, {});
      ASSERT_TRUE(next.ok() && next->exit_code == 0) << arm << ": the next writer failed";
      EXPECT_TRUE(harness.Check().ok()) << arm;
      ++deaths;
    }
  }
  std::printf("%zu fault points, %llu deaths\n", points.size(),
              static_cast<unsigned long long>(deaths));
}

// An error at each point leaves the old state or the new one, and a store that works.
TEST(FaultPointKillTest, EveryStepMayFail) {
  for (const auto& [name, count] : RecordPoints(kPointPlan, kPointEvents)) {
    KillHarness harness(kPointPlan, "interval");
    const std::string arm =
        absl::StrCat("HPS_FAULT_ARM=", name, "=fail:RESOURCE_EXHAUSTED@", count / 2);
    const auto ending = harness.RunToEnd(kPointEvents, {arm});
    ASSERT_TRUE(ending.ok()) << arm << ": " << ending.status();
    EXPECT_EQ(ending->exit_code, 0) << arm;
    const absl::Status checked = harness.Check();
    EXPECT_TRUE(checked.ok()) << arm << ": " << checked;
  }
}

// Catches: an import that switches to page files before they are durable, and before their names
// are.
TEST(PageFileKillTest, NothingSwitchesBeforeItsFilesAreSynced) {
  constexpr EventPlan kPlan = {.seed = 9, .import_every = 1};
  for (const char* point :
       {"l3_pages.sync.call", "l3_pages.sync_directory.call", "l3.pages.before_sync"}) {
    KillHarness harness(kPlan, "never");
    ASSERT_TRUE(harness.RunToEnd(2, {}).ok());
    ASSERT_TRUE(harness.Check().ok());
    const auto ending = harness.RunToEnd(1, {absl::StrCat("HPS_FAULT_ARM=", point, "=abort")});
    ASSERT_TRUE(ending.ok() && ending->killed) << point;
    const absl::Status checked = harness.Check();
    EXPECT_TRUE(checked.ok()) << point << ": " << checked;
    EXPECT_EQ(harness.counts().carried, 0u) << point << ": the import is there";
  }
}

// Steps of a merge of changes into a new page file, from its beginning to the removal of the old
// file. The sixth event is an import, the others change rows.
constexpr EventPlan kMergePlan = {.seed = 11, .import_every = 6, .merges = true};
constexpr std::array<const char*, 11> kMergePoints = {
    "l3.merge.before_family", "l3.merge.after_family",  "l3_pages.create.after",
    "l3_pages.write.call",    "l3_pages.sync.call",     "l3_pages.sync_directory.call",
    "l3.merge.after_build",   "l3.merge.before_switch", "l3.merge.in_switch",
    "l3.merge.after_switch",  "l3.pages.before_removal"};

// Dies at a step of the first merge or of a later one, and goes on.
TEST(MergeKillTest, EveryStepMayBeTheLast) {
  uint64_t skipped = 0;
  for (const char* point : kMergePoints) {
    KillHarness harness(kMergePlan, "interval");
    ASSERT_TRUE(harness.RunToEnd(1, {}).ok());
    ASSERT_TRUE(harness.Check().ok());
    const std::string arm = absl::StrCat("HPS_FAULT_ARM=", point, "=abort@", skipped);
    skipped = skipped == 0 ? 4 : 0;
    const auto ending = harness.RunToEnd(20, {arm});
    ASSERT_TRUE(ending.ok()) << arm << ": " << ending.status();
    EXPECT_TRUE(ending->killed) << arm << " was not reached";
    const absl::Status checked = harness.Check();
    EXPECT_TRUE(checked.ok()) << arm << ": " << checked;
    const auto next = harness.RunToEnd(3, {});
    ASSERT_TRUE(next.ok() && next->exit_code == 0) << arm << ": the next writer failed";
    const absl::Status after = harness.Check();
    EXPECT_TRUE(after.ok()) << arm << ": " << after;
  }
}

// An import beside a server: the child stages, this process is the server.
class StagedImportKillTest : public testing::Test {
 protected:
  StagedImportKillTest() {
    EXPECT_TRUE(harness_.RunToEnd(3, {}).ok());
    EXPECT_TRUE(harness_.Check().ok());
    RocksStoreOptions options = TestStoreOptions(harness_.store());
    options.role = OwnerRole::kServer;
    auto opened = OpenRocksStore(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) server_ = *std::move(opened);
    state_.AdvanceTo(3);
  }

  // The server takes what is ready, and nothing else. True when it was ready.
  bool RefreshAndCompare() {
    const absl::StatusOr<RefreshResult> refreshed = server_->Refresh();
    const absl::Status error = ErrorOf(refreshed);
    EXPECT_TRUE(error.ok()) << error;
    if (!error.ok()) return false;
    if (refreshed->changed) state_.AdvanceTo(4);
    const absl::Status same = state_.Compare(*server_);
    EXPECT_TRUE(same.ok()) << same;
    return refreshed->changed;
  }

  const EventPlan plan_ = {.seed = 9, .import_every = 4};
  KillHarness harness_{plan_, "never"};
  std::unique_ptr<DurableStore> server_;
  PlannedState state_{plan_};
};

TEST_F(StagedImportKillTest, AStagedImportIsTakenWhole) {
  ASSERT_NE(server_, nullptr);
  const auto ending = harness_.RunToEnd(1, {}, "staged");
  ASSERT_TRUE(ending.ok() && ending->exit_code == 0) << ending.status();
  EXPECT_TRUE(RefreshAndCompare());
}

TEST_F(StagedImportKillTest, ACommandThatDiesBeforeItIsReadyChangesNothing) {
  ASSERT_NE(server_, nullptr);
  for (const char* point :
       {"l3.import.before_finish", "l3.import.after_finish", "l3.stage.before_ready"}) {
    const auto ending =
        harness_.RunToEnd(1, {absl::StrCat("HPS_FAULT_ARM=", point, "=abort")}, "staged");
    ASSERT_TRUE(ending.ok() && ending->killed) << point;
    EXPECT_FALSE(RefreshAndCompare()) << point;
  }
  ASSERT_TRUE(harness_.RunToEnd(1, {}, "staged").ok());
  EXPECT_TRUE(RefreshAndCompare());
}

// Catches: a replaced import that goes before the newer one is complete, or comes back over it.
TEST_F(StagedImportKillTest, ACommandThatDiesWhileItReplacesAnImportLeavesItsOwn) {
  ASSERT_NE(server_, nullptr);
  const RocksStoreOptions options = TestStoreOptions(harness_.store());
  for (const char* point : {"l3.stage.before_removal", "l3.stage.in_removal"}) {
    SCOPED_TRACE(point);
    ASSERT_TRUE(harness_.RunToEnd(1, {}, "staged").ok());
    const auto older = ListPendingImports(options);
    ASSERT_TRUE(older.ok() && older->size() == 1) << older.status();
    const auto ending =
        harness_.RunToEnd(1, {absl::StrCat("HPS_FAULT_ARM=", point, "=abort")}, "staged");
    ASSERT_TRUE(ending.ok() && ending->killed);
    const auto waiting = ListPendingImports(options);
    ASSERT_TRUE(waiting.ok() && !waiting->empty()) << waiting.status();
    const Incarnation newest = waiting->back().tables.at(0).incarnation;
    EXPECT_NE(newest, older->at(0).tables.at(0).incarnation);
    EXPECT_TRUE(RefreshAndCompare());
    EXPECT_EQ(server_->Tables()->at(0).incarnation, newest);
    EXPECT_TRUE(std::filesystem::is_empty(harness_.store() + "/staging"));
  }
}

// Points that no planned event passes; each has its own test.
const std::set<std::string>& PointsTestedElsewhere() {
  static const std::set<std::string> points = {"l3.import.after_network", "l3.stage.before_ready",
                                               "l3.stage.before_removal", "l3.stage.in_removal",
                                               "l3.merge.before_family",  "l3.merge.after_family",
                                               "l3.merge.after_build",    "l3.merge.before_switch",
                                               "l3.merge.in_switch",      "l3.merge.after_switch"};
  return points;
}

TEST(FaultPointsOfTheStoreTest, NoneIsForgotten) {
  const std::map<std::string, uint64_t> reached = RecordPoints(kPointPlan, kPointEvents);
  for (const std::string& point : PointsInSource()) {
    EXPECT_TRUE(reached.contains(point) || PointsTestedElsewhere().contains(point))
        << point << " is in the source, but no test dies there";
  }
}

}  // namespace
}  // namespace hps
