// The models that a store serves. Gives their tables caches within the budgets, and switches whole
// models to the newest tables of the store.
//
// Each model switches on its own. A model that cannot switch keeps its current tables.
//
// The budgets of a table in levels 1 and 2 are fixed when it is loaded. At the start all models of
// the store divide a level together (node/budget.h), also those that are loaded one after the
// other. The tables of a new import divide the bytes of the tables that they replace and the bytes
// that no table holds; several models with new imports do so in the order of the store. A model
// that is loaded later divides the bytes that no table holds. A served table is never created again
// to make room for another. A short budget is not an error: a table for which too little is left is
// served without the level, with a warning in the log and a bytes_max of 0 in the statistics.
//
// Running lookups finish on the tables that they started with. A table whose incarnation is
// unchanged keeps its caches and their rows (except in a store that only reads: there it is opened
// again when the writer has changed it). During a switch, level 2 may hold the rows of the old and
// the new tables together. A switch waits for running changes of the model's tables, for
// kWriterWaitMax, and keeps writers out until it has ended (serving/model_registry.h).
//
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "hps/config.h"
#include "hps/lookup_session.h"
#include "hps/model_manager.h"
#include "hps/statistics.h"
#include "node/budget.h"
#include "node/device_level.h"
#include "node/tier_factory.h"
#include "query/session_factory.h"
#include "serving/model_registry.h"
#include "tier/durable_tier.h"

namespace hps {

class ServedModels {
 public:
  // All borrowed. They must outlive this object, except for the executors: destroy first the
  // sessions, then the executors, then this object.
  struct Parts {
    const Config* config = nullptr;
    DurableStore* durable = nullptr;
    const L2Tiers* l2 = nullptr;
    DeviceLevel* l1 = nullptr;  // null: no level 1
    SessionFactory* sessions = nullptr;
    ModelRegistry* registry = nullptr;
  };

  // How long a switch waits for a change that is being applied.
  static constexpr Duration kWriterWaitMax = std::chrono::seconds(5);

  explicit ServedModels(const Parts& parts) : parts_(parts) {}
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  // How to treat a configured model or table that the store does not have.
  enum class Missing { kError, kIgnored };
  // The errors of models that could not switch, and of followers (Follow) of models that have, by
  // model. The messages name the model.
  using ModelErrors = std::map<std::string, absl::Status>;

  // Switches every model to the store's current tables, each in one step. Returns the models that
  // could not switch: UNAVAILABLE (the tables keep changing, or a change of one did not end in
  // time), RESOURCE_EXHAUSTED (too many tables), errors of DurableStore::OpenTable.
  // Errors: those of DurableStore::Tables, NOT_FOUND (see Missing); no model has switched then.
  absl::StatusOr<ModelErrors> Switch(Missing missing);

  // As Switch, for this model only; also loads an unloaded model. Errors: NOT_FOUND, and those that
  // Switch returns for the model.
  absl::Status Load(const std::string& model);

  // Switches the model to no tables. AwaitReclaimed waits until their memory has been released.
  // Errors: NOT_FOUND, and those of DurableStore::Tables.
  absl::Status Unload(const std::string& model);

  // As ModelManager::Follow.
  std::shared_ptr<void> Follow(const std::string& model, std::function<absl::Status()> on_switch);

  std::vector<ModelInfo> List() const;

  // Pins the model's current snapshot. Errors: those of NewSession.
  absl::StatusOr<SnapshotPin> Pin(const std::string& model);

  // Ends and disables preloading.
  void StopPreloading();

  // Checks that the store has the configured models and tables. Errors: NOT_FOUND, those of
  // DurableStore::Tables.
  absl::Status CheckConfigured() const { return DesiredModels(Missing::kError).status(); }

  // Waits until all replaced tables of the model have been destroyed. False if `deadline` has
  // passed.
  bool AwaitReclaimed(const std::string& model, Deadline deadline);

  // As SessionFactory::NewSession. Errors: those of Store::NewSession; for a model whose first
  // switch failed, that error.
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const std::string& model,
                                                            const SessionOptions& options,
                                                            SessionResources resources = nullptr);

  // Whether any model has a table.
  bool HasTables() const;

  // Statistics of all tables, sorted by model.
  std::vector<TableStatistics> Statistics() const;

 private:
  // The tables that a model should have, by the store and the configuration.
  struct DesiredModel {
    std::string model;
    std::vector<TableInfo> tables;  // in declared order
  };
  // A table of a model's next version.
  struct TableBuild {
    std::unique_ptr<DurableTable> l3;  // null if the live table `served` is kept
    std::shared_ptr<LiveTable> served;
    uint64_t l2_bytes = 0;  // 0 also if level 2 has no budgets
    uint64_t l1_bytes = 0;  // on each device; 0 for a table that is kept
  };
  struct ModelBuild {
    std::string model;
    std::vector<TableBuild> tables;
    uint64_t version = 0;  // 0: as it was
    bool changed = false;
    bool unload = false;                            // it has no tables because it was unloaded
    std::shared_ptr<const ModelNetwork> network{};  // null: it has none
  };

  // The models that a switch may change: one or all.
  struct Scope {
    Missing missing = Missing::kIgnored;
    const std::string* only = nullptr;  // null = all

    bool Has(const std::string& model) const { return only == nullptr || *only == model; }
  };

  struct Follower {
    const std::string model;
    Mutex mutex;                                                    // held while it is called
    std::function<absl::Status()> on_switch HPS_GUARDED_BY(mutex);  // null: it follows no more
  };

  absl::StatusOr<ModelErrors> SwitchIn(const Scope& scope, std::vector<std::string>& switched)
      HPS_REQUIRES(change_mutex_);
  absl::Status LoadIn(const std::string& model) HPS_REQUIRES(change_mutex_);
  absl::Status UnloadIn(const std::string& model) HPS_REQUIRES(change_mutex_);
  ModelErrors TellFollowers(std::span<const std::string> models) HPS_EXCLUDES(change_mutex_);
  std::map<std::string, bool> StoredModels() const;
  std::vector<std::string> KnownModels(const std::map<std::string, bool>& stored) const;
  absl::StatusOr<LiveModel*> LoadedModel(const std::string& model);
  absl::StatusOr<std::vector<DesiredModel>> DesiredModels(Missing missing) const;
  absl::StatusOr<std::vector<DesiredModel>> DesiredModelsIn(const Scope& scope) const;
  absl::Status ApplyDeclaredOrder(const ModelConfig& config, Missing missing,
                                  DesiredModel& desired) const;
  static bool SameTables(const DesiredModel& a, const DesiredModel& b);
  absl::StatusOr<std::vector<ModelBuild>> PinModels(const Scope& scope, ModelErrors& errors)
      HPS_REQUIRES(change_mutex_);
  absl::StatusOr<ModelBuild> PinModel(const DesiredModel& desired) HPS_REQUIRES(change_mutex_);
  absl::StatusOr<std::shared_ptr<const ModelNetwork>> NetworkOf(const DesiredModel& desired) const;
  absl::StatusOr<std::unique_ptr<DurableTable>> OpenIncarnation(const std::string& table,
                                                                Incarnation incarnation) const;
  std::vector<ModelBuild> EmptiedModels(const Scope& scope,
                                        const std::vector<DesiredModel>& desired) const;
  bool WantsL2(const std::string& table) const;
  BudgetRequest RequestFor(const TableInfo& table) const;
  static std::vector<TableBuild*> NewTables(std::span<ModelBuild> models);
  static bool IsKept(std::span<const ModelBuild> models, const std::string& table);
  absl::StatusOr<std::vector<TableInfo>> WaitingTables(std::span<const ModelBuild> models) const;
  void DivideL2(std::span<ModelBuild> models, std::span<const TableInfo> waiting) const
      HPS_REQUIRES(change_mutex_);
  void DivideL1(std::span<ModelBuild> models, std::span<const TableInfo> waiting) const;
  void ServeTogether(std::span<ModelBuild> models, std::span<const TableInfo> waiting,
                     ModelErrors& errors, std::vector<std::string>& switched)
      HPS_REQUIRES(change_mutex_);
  absl::Status Serve(ModelBuild& building) HPS_REQUIRES(change_mutex_);
  absl::StatusOr<L2Part::Opened> OpenL2Part(const L2PartTier& part, const TableBuild& table) const;
  // The parts that the table has.
  std::vector<L2Part::Opened> OpenL2(TableBuild& table) const;
  std::shared_ptr<LiveTable> MakeServed(TableBuild& table) const;
  bool MayPreload() const { return !stop_preloading_.load(std::memory_order_relaxed); }
  void Preload(LiveTable& table) const;
  void AdoptL1(const TableBuild& table) const;
  const TableConfig* OverrideOf(const std::string& table) const;

  const Parts parts_;
  std::atomic<bool> stop_preloading_{false};
  Mutex change_mutex_;  // one switch at a time; taken before mutex_
  // Level 2 budgets of the live tables.
  std::map<std::string, uint64_t> l2_bytes_ HPS_GUARDED_BY(change_mutex_);
  mutable Mutex mutex_;
  ModelErrors errors_ HPS_GUARDED_BY(mutex_);  // of each model's last switch
  std::set<std::string> unloaded_ HPS_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Follower>> followers_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
