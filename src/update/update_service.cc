#include "update/update_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "types/names.h"

namespace hps {
namespace {

// Longest time that one table's refresh of a cycle may take; the rest follows in the next cycle.
constexpr auto kCycleWaitMax = std::chrono::seconds(10);

absl::Status NoSuchTable(const std::string& table, const DurableStore& store) {
  std::vector<std::string> names;
  if (const auto tables = store.Tables(); tables.ok()) {
    for (const TableInfo& info : *tables) names.push_back(info.spec.name);
  }
  return Public(absl::NotFoundError(
      absl::StrCat("the store has no table '", table, "'", NearestNameHint(table, names))));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateService>> UpdateService::Create(const Options& options) {
  std::unique_ptr<UpdateService> service(new UpdateService(options));
  HPS_RETURN_IF_ERROR(service->refresher_.Start("hps-refresh", [&owner = *service] {
    owner.RefreshNow();
    return owner.options_.refresh_interval;
  }));
  return service;
}

absl::StatusOr<TableApplier*> UpdateService::ApplierOf(const std::string& table) {
  {
    MutexLock lock(mutex_);
    if (const auto found = appliers_.find(table); found != appliers_.end())
      return found->second.get();
  }
  const absl::Status opened = options_.store->OpenTable(table).status();
  if (absl::IsNotFound(opened)) return NoSuchTable(table, *options_.store);
  HPS_RETURN_IF_ERROR(opened);
  MutexLock lock(mutex_);
  std::unique_ptr<TableApplier>& applier = appliers_[table];
  if (applier == nullptr)
    applier = std::make_unique<TableApplier>(table, *options_.registry, *options_.store,
                                             &freshness_, options_.teams);
  return applier.get();
}

absl::Status UpdateService::Apply(const std::string& table,
                                  const TableApplier::DirectChange& change, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(TableApplier* const applier, ApplierOf(table));
  HPS_RETURN_IF_ERROR(applier->ApplyDirect(change, deadline));
  return group_sync_.Sync();
}

absl::Status UpdateService::RefreshModel(const std::string& model, Deadline deadline) {
  const LiveModel* const live = options_.registry->Find(model);
  if (live == nullptr || live->Tables().empty()) {
    return Public(absl::NotFoundError(absl::StrCat("model '", model, "' is not loaded")));
  }
  {
    MutexLock lock(mutex_);
    if (std::exchange(refreshing_[model], true)) {
      return Public(absl::FailedPreconditionError(
          absl::StrCat("model '", model, "': a full refresh is running")));
    }
  }
  absl::Status status;
  for (const std::shared_ptr<LiveTable>& table : live->Tables()) {
    const absl::StatusOr<TableApplier*> applier = ApplierOf(table->spec().name);
    status = applier.ok() ? (*applier)->RefreshAll(deadline) : applier.status();
    if (!status.ok()) break;
  }
  MutexLock lock(mutex_);
  refreshing_[model] = false;
  return status;
}

void UpdateService::RefreshNow() {
  for (TableApplier* const applier : appliers()) {
    if (!applier->needs_refresh()) continue;
    const absl::Status status = applier->RefreshChanged(DeadlineAfter(RealClock(), kCycleWaitMax));
    if (status.ok() || absl::IsUnavailable(status)) continue;  // a load: the next cycle goes on
    LogWarning(
        absl::StrCat("level 1 of table '", applier->table(),
                     "' was not refreshed, the next cycle tries again: ", TextForLog(status)));
  }
}

std::vector<TableApplier*> UpdateService::appliers() const {
  MutexLock lock(mutex_);
  std::vector<TableApplier*> all;
  for (const auto& [table, applier] : appliers_) all.push_back(applier.get());
  return all;
}

UpdateStatistics UpdateService::Statistics() const {
  UpdateStatistics sum;
  for (const TableApplier* const applier : appliers()) {
    const TableApplier::Counts counts = applier->counts();
    sum.changes += counts.changes;
    sum.changes_failed += counts.changes_failed;
    sum.rows_upserted += counts.rows_upserted;
    sum.rows_deleted += counts.rows_deleted;
    sum.rows_refreshed += counts.rows_refreshed;
  }
  sum.l1_freshness = freshness_.l1.histogram();
  sum.l2_freshness = freshness_.l2.histogram();
  sum.l3_freshness = freshness_.l3.histogram();
  return sum;
}

}  // namespace hps
