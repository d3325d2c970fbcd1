// The write path of a process: one applier for each table that changes, and the thread that brings
// level 1 up to date.
//
// Thread-safe. Must end before what it borrows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "base/mutex.h"
#include "base/step_thread.h"
#include "hps/statistics.h"
#include "serving/model_registry.h"
#include "tier/durable_tier.h"
#include "update/group_sync.h"
#include "update/table_applier.h"

namespace hps {

class UpdateService {
 public:
  struct Options {
    ModelRegistry* registry = nullptr;  // borrowed
    DurableStore* store = nullptr;      // borrowed
    Duration refresh_interval = std::chrono::milliseconds(200);
    ForkJoinPool* teams = nullptr;  // borrowed; helpers that refresh level 1; null = none
  };
  // Starts the thread. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<UpdateService>> Create(const Options& options);
  UpdateService(const UpdateService&) = delete;
  UpdateService& operator=(const UpdateService&) = delete;

  // The table's applier; it lives as long as the service. Errors: NOT_FOUND, with the nearest name.
  absl::StatusOr<TableApplier*> ApplierOf(const std::string& table);

  // Applies a direct change and syncs it to the disk, whatever the store's sync mode. Errors: those
  // of TableApplier::ApplyDirect and DurableStore::Sync.
  absl::Status Apply(const std::string& table, const TableApplier::DirectChange& change,
                     Deadline deadline);

  // Full refresh of level 1 for all tables of a model, one after another. One per model at a time.
  // Errors: NOT_FOUND (no such model is loaded), FAILED_PRECONDITION (a full refresh of the model
  // is running), those of TableApplier::RefreshAll.
  absl::Status RefreshModel(const std::string& model, Deadline deadline);

  // Level 1 of every table is brought up to date now. For tests.
  void RefreshNow();

  UpdateStatistics Statistics() const;

 private:
  explicit UpdateService(const Options& options) : options_(options), group_sync_(*options.store) {}

  std::vector<TableApplier*> appliers() const;

  const Options options_;
  GroupSync group_sync_;
  TableApplier::LevelFreshness freshness_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<TableApplier>> appliers_ HPS_GUARDED_BY(mutex_);
  std::map<std::string, bool> refreshing_ HPS_GUARDED_BY(mutex_);  // by model
  StepThread refresher_;  // declared last, so it ends first
};

}  // namespace hps
