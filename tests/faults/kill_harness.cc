#include "tests/faults/kill_harness.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/files/page_store.h"
#include "tests/faults/test_fault_store.h"

namespace hps {
namespace {

constexpr Duration kChildLifeMax = std::chrono::seconds(60);

std::string WithoutNumber(const std::string& page_file) {
  return page_file.substr(0, page_file.rfind('-'));
}

}  // namespace

KillHarness::KillHarness(const EventPlan& plan, std::string sync)
    : plan_(plan), sync_(std::move(sync)), state_(plan) {}

absl::StatusOr<ChildProcess> KillHarness::Start(uint64_t last,
                                                const std::vector<std::string>& environment,
                                                const std::string& way) {
  return ChildProcess::Start(ProgramBesideThisOne("kill_child"),
                             {store(), absl::StrCat(plan_.seed), absl::StrCat(plan_.import_every),
                              absl::StrCat(plan_.drop_every), plan_.merges ? "1" : "0",
                              absl::StrCat(state_.events() + 1), absl::StrCat(last), sync_, way},
                             environment);
}

void KillHarness::NoteReports(const ChildProcess& child) {
  counts_.acknowledged += child.reports().size();
  if (!child.reports().empty()) acknowledged_ = child.reports().back();
}

absl::Status KillHarness::RunAndKill(Duration life, uint64_t events_min) {
  HPS_ASSIGN_OR_RETURN(ChildProcess child, Start(0, {}, "plain"));
  const Deadline life_max = DeadlineAfter(RealClock(), kChildLifeMax);
  bool ended = child.ReadUntil(DeadlineAfter(RealClock(), life));
  while (!ended && child.reports().size() < events_min && RealClock().Now() < life_max)
    ended = child.ReadUntil(DeadlineAfter(RealClock(), std::chrono::milliseconds(1)));
  child.Kill();
  NoteReports(child);
  ++counts_.deaths;
  if (!ended) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the child ended by itself, wait status ",
                                          child.wait_status(), ", before event ",
                                          acknowledged_ + 1));
}

absl::StatusOr<KillHarness::Ending> KillHarness::RunToEnd(
    uint64_t events, const std::vector<std::string>& environment, const std::string& way) {
  HPS_ASSIGN_OR_RETURN(ChildProcess child, Start(state_.events() + events, environment, way));
  const bool ended = child.WaitForEnd(DeadlineAfter(RealClock(), kChildLifeMax));
  NoteReports(child);
  if (!ended) return absl::DeadlineExceededError("the child did not end");
  Ending ending;
  ending.killed = WIFSIGNALED(child.wait_status()) && WTERMSIG(child.wait_status()) == SIGKILL;
  ending.exit_code = WIFEXITED(child.wait_status()) ? WEXITSTATUS(child.wait_status()) : -1;
  counts_.deaths += ending.killed ? 1 : 0;
  return ending;
}

absl::Status KillHarness::RunDefective(uint64_t events, const std::string& way) {
  HPS_ASSIGN_OR_RETURN(ChildProcess child, Start(state_.events() + events, {}, way));
  const Deadline deadline = DeadlineAfter(RealClock(), kChildLifeMax);
  // A torn event is reported twice: when it was done, and when the half one after it was.
  const size_t reports = way == "torn" ? events + 1 : events;
  while (child.reports().size() < reports && RealClock().Now() < deadline) {
    if (child.ReadUntil(DeadlineAfter(RealClock(), std::chrono::milliseconds(1)))) break;
  }
  child.Kill();
  NoteReports(child);
  return absl::OkStatus();
}

absl::Status KillHarness::Check() {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableStore> opened,
                       OpenRocksStore(TestStoreOptions(store())));
  state_.AdvanceTo(std::max(state_.events(), acknowledged_));
  const absl::Status without = state_.Compare(*opened);
  if (without.ok()) return CheckLeftovers(*opened);
  state_.AdvanceTo(state_.events() + 1);
  const absl::Status with = state_.Compare(*opened);
  if (!with.ok()) {
    return absl::InternalError(absl::StrCat(
        "after event ", state_.events() - 1, " was acknowledged, the store holds neither it (",
        without.message(), ") nor the next one (", with.message(), ")"));
  }
  ++counts_.carried;
  return CheckLeftovers(*opened);
}

// What a dead import has left is gone once the store has a new writer.
absl::Status KillHarness::CheckLeftovers(DurableStore& opened) const {
  std::error_code error;
  const std::filesystem::path staging = store() + "/staging";
  for (const auto& entry : std::filesystem::directory_iterator(staging, error))
    return absl::InternalError(absl::StrCat("left over: ", entry.path().string()));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> tables, opened.Tables());
  // Each table has one file; merges give it other numbers.
  std::set<std::string> known;
  for (const TableInfo& table : tables)
    known.insert(WithoutNumber(PageFilePath(store(), table.incarnation, 0)));
  for (const auto& entry : std::filesystem::directory_iterator(PagesDirectory(store()), error)) {
    if (known.erase(WithoutNumber(entry.path().string())) == 0)
      return absl::InternalError(absl::StrCat("left over: ", entry.path().string()));
  }
  return absl::OkStatus();
}

}  // namespace hps
