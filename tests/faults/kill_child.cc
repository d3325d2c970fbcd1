// The process that kill_test kills: does planned events to a store and reports each one when it is
// acknowledged, until it is killed or the last event is done.
//
//   kill_child STORE SEED IMPORT_EVERY DROP_EVERY MERGES FIRST LAST SYNC WAY
//
// MERGES is 1 if the store merges changes into new page files after each event, else 0. SYNC is
// always, interval or never. WAY is "plain"; or "staged": the one event is an import, made as a
// command makes it beside a server; or a defect that the parent must notice: "early" reports events
// that have not been done yet, "torn" leaves an event half done. HPS_TEST_RECORD names a file that
// gets the fault points passed, with counts, at a clean end.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "testing/await.h"
#include "testing/faults/fault_points.h"
#include "tests/faults/child_process.h"
#include "tests/faults/planned_events.h"
#include "tests/faults/test_fault_store.h"

namespace hps {
namespace {

constexpr uint64_t kEarlyEvents = 5;
constexpr Duration kMergeWait = std::chrono::milliseconds(300);

struct Arguments {
  std::string store;
  EventPlan plan;
  uint64_t first = 1;
  uint64_t last = 0;
  SyncMode sync = SyncMode::kNever;
  std::string way;
};

SyncMode ParseSync(const std::string& text) {
  if (text == "always") return SyncMode::kAlways;
  return text == "interval" ? SyncMode::kInterval : SyncMode::kNever;
}

void Report(uint64_t number) {
  if (write(kReportDescriptor, &number, sizeof(number)) != sizeof(number)) std::_Exit(4);
}

// Rows without the positions that belong to them, as a store without atomic batches might leave.
absl::Status DoHalf(DurableStore& store) {
  HPS_ASSIGN_OR_RETURN(const auto table, store.OpenTable(kPlannedTables[0]));
  const Key key = PlannedKey(7);
  std::vector<std::byte> row(kPlannedRowBytes);
  return table->Write({.upserts = {.keys = {&key, 1},
                                   .rows = {.data = row.data(),
                                            .row_count = 1,
                                            .row_bytes = row.size(),
                                            .stride_bytes = row.size()}}});
}

// An import beside the server that has the store.
absl::Status DoStaged(const RocksStoreOptions& options, const EventPlan& plan, uint64_t event) {
  HPS_ASSIGN_OR_RETURN(const auto import, StageImport(options, PlannedSpecs()));
  HPS_ASSIGN_OR_RETURN(const BulkImport::Result result, FillAndCommit(*import, plan, event));
  if (!result.staged) return absl::InternalError("the import should have been staged");
  return absl::OkStatus();
}

uint64_t MergeCount(const DurableStore& store) {
  const DurableStatistics statistics = store.Statistics();
  return statistics.merges + statistics.merges_failed;
}

// Not every event causes one.
void AwaitMerge(const DurableStore& store, uint64_t before) {
  HoldsInTime([&] { return MergeCount(store) != before; }, kMergeWait);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "kill_child: %s\n", status.ToString().c_str());
  return 3;
}

void WriteRecord(const char* file) {
  std::ofstream out(file);
  for (const auto& [name, count] : FaultPoints::Arrivals()) out << name << ' ' << count << '\n';
}

int Run(const Arguments& arguments) {
  const absl::Status armed = FaultPoints::ArmFromEnvironment();
  if (!armed.ok()) return Fail(armed);
  const char* record = std::getenv("HPS_TEST_RECORD");
  if (record != nullptr) FaultPoints::Record();
  const bool fails_by_plan = std::getenv("HPS_FAULT_ARM") != nullptr;
  RocksStoreOptions options = TestStoreOptions(arguments.store);
  if (arguments.plan.merges) {
    options.role = OwnerRole::kServer;
    options.merge_keys_min = 1;
    options.config.merge_share = 0.001;
  }
  options.config.sync = arguments.sync;
  options.config.sync_interval = std::chrono::milliseconds(5);
  if (arguments.way == "staged") {
    const absl::Status staged = DoStaged(options, arguments.plan, arguments.first);
    if (!staged.ok()) return fails_by_plan ? 0 : Fail(staged);
    Report(arguments.first);
    if (record != nullptr) WriteRecord(record);
    return 0;
  }
  auto store = OpenRocksStore(options);
  if (!store.ok()) return fails_by_plan ? 0 : Fail(store.status());
  for (uint64_t event = arguments.first; arguments.last == 0 || event <= arguments.last; ++event) {
    const uint64_t merges = MergeCount(**store);
    const absl::Status done = DoEvent(**store, arguments.plan, event);
    if (!done.ok()) return fails_by_plan ? 0 : Fail(done);
    Report(arguments.way == "early" ? event + kEarlyEvents : event);
    const bool is_write = !arguments.plan.IsImport(event) && !arguments.plan.IsDrop(event);
    if (arguments.plan.merges && is_write) AwaitMerge(**store, merges);
  }
  if (arguments.way == "torn") {
    const absl::Status done = DoHalf(**store);
    if (!done.ok()) return Fail(done);
    Report(arguments.last);
    pause();
  }
  store->reset();
  if (record != nullptr) WriteRecord(record);
  return 0;
}

}  // namespace
}  // namespace hps

int main(int count, char** values) {
  if (count != 10) return 2;
  auto number = [&](int i) { return std::strtoull(values[i], nullptr, 10); };
  hps::Arguments arguments;
  arguments.store = values[1];
  arguments.plan = {.seed = number(2),
                    .import_every = number(3),
                    .drop_every = number(4),
                    .merges = number(5) != 0};
  arguments.first = number(6);
  arguments.last = number(7);
  arguments.sync = hps::ParseSync(values[8]);
  arguments.way = values[9];
  return hps::Run(arguments);
}
