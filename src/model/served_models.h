// The models that a store serves: gives their tables levels within the budgets, and switches whole
// models to what the store has.
//
// Each model switches on its own: one that can't keeps its old tables, and the others go on. No
// model is ever refused for want of a budget: level 2 is divided anew at every switch
// (model/budget.h), and a table for which nothing is left is served without it, with a warning in
// the log and a bytes_max of 0 in the statistics.
//
// Thread-safe. Running calls end on the tables that they began with; a table whose incarnation and
// budgets have not changed keeps its levels and what they hold. While a model switches, the rows of
// level 2 of its old and its new tables may both be held for a moment. A table that has to give up
// bytes of level 1 or 2 is opened anew in its incarnation, so no table may be written during a
// switch.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
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
#include "model/budget.h"
#include "model/device_level.h"
#include "model/tier_factory.h"
#include "query/session_factory.h"
#include "query/snapshot/model_state.h"
#include "tier/durable_tier.h"

namespace hps {

// Of a table's name, MODEL/TABLE.
std::string ModelOf(const std::string& table);

class ServedModels {
 public:
  // All borrowed; they must outlive this object, but for the executors: end those first, and the
  // sessions before them.
  struct Parts {
    const Config* config = nullptr;
    DurableStore* durable = nullptr;
    const L2Tier* l2 = nullptr;
    DeviceLevel* l1 = nullptr;  // null: no level 1
    SessionFactory* sessions = nullptr;
    Executor* reclaim = nullptr;
  };

  explicit ServedModels(const Parts& parts) : parts_(parts) {}
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  // What a model or table that the configuration names and the store lacks is.
  enum class Missing { kError, kIgnored };
  // Why models could not switch, by model. The messages name the model.
  using ModelErrors = std::map<std::string, absl::Status>;

  // Brings every model to the tables that the store has now, each in one step. Returns those that
  // could not: UNAVAILABLE (its tables keep changing), RESOURCE_EXHAUSTED (too many tables), those
  // of DurableStore::OpenTable.
  // Errors: those of DurableStore::Tables, NOT_FOUND (see Missing); no model has switched then.
  absl::StatusOr<ModelErrors> Switch(Missing missing);

  // As Switch, for this model alone: the others keep the tables that they have. Also for one that
  // was unloaded. Errors: NOT_FOUND, and those that Switch gives for the model.
  absl::Status Load(const std::string& model);

  // Switches the model to no tables. What they held has been given back when AwaitReclaimed of its
  // state is true. Errors: NOT_FOUND, and those of DurableStore::Tables.
  absl::Status Unload(const std::string& model);

  std::vector<ModelInfo> List() const;

  // A model's tables as they are now.
  struct Pinned {
    SnapshotPin pin;
    uint64_t version = 0;
    std::vector<TableSpec> tables{};
  };
  // Errors: those of NewSession.
  absl::StatusOr<Pinned> Pin(const std::string& model);

  // Loads leave the levels as they are from now on.
  void StopPreloading();

  // Whether the store has what the configuration names. Errors: NOT_FOUND, those of
  // DurableStore::Tables.
  absl::Status CheckConfigured() const { return WantedModels(Missing::kError).status(); }

  // Waits until no replaced tables of the model are in memory any more. False when `deadline` has
  // passed.
  bool AwaitReclaimed(const std::string& model, Deadline deadline);

  // Errors: those of Store::NewSession; for a model that has no tables because it could not switch
  // to them, the reason.
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const std::string& model,
                                                            const SessionOptions& options);

  // Whether any model has a table.
  bool HasTables() const;

  // The tables of all models, model after model.
  std::vector<TableStatistics> Statistics() const;

 private:
  // A model as the store and the configuration want it.
  struct Wanted {
    std::string model;
    std::vector<TableInfo> tables;  // in declared order
  };
  // A table of a model on its way to being served.
  struct Building {
    std::unique_ptr<DurableTable> l3;  // null when `served` is kept as it is
    std::shared_ptr<ServedTable> served;
    uint64_t l2_bytes = 0;
    uint64_t l1_bytes = 0;  // of each device's cache, where it is new there

    const DurableTable& durable() const { return l3 != nullptr ? *l3 : served->l3(); }
  };
  struct BuildingModel {
    std::string model;
    std::vector<Building> tables;
    bool changed = false;
    bool unload = false;  // it is to have no tables because it was unloaded
  };

  // What a switch is to change: one model, or all of them.
  struct Scope {
    Missing missing = Missing::kIgnored;
    const std::string* only = nullptr;  // null: all

    bool Has(const std::string& model) const { return only == nullptr || *only == model; }
  };
  // Which rows a model has been switched to.
  struct Version {
    uint64_t number = 0;
    std::vector<Incarnation> incarnations{};
  };

  absl::StatusOr<ModelErrors> SwitchIn(const Scope& scope) HPS_REQUIRES(change_mutex_);
  std::map<std::string, bool> StoredModels() const;
  std::vector<std::string> KnownModels(const std::map<std::string, bool>& stored) const;
  absl::StatusOr<ModelState*> LoadedState(const std::string& model);
  absl::StatusOr<std::vector<Wanted>> WantedModels(Missing missing) const;
  absl::StatusOr<std::vector<Wanted>> WantedModelsIn(const Scope& scope) const;
  std::vector<BuildingModel> KeptModels(const Scope& scope) HPS_REQUIRES(change_mutex_);
  void NoteVersion(const BuildingModel& model);
  absl::Status ApplyDeclaredOrder(const ModelConfig& config, Missing missing, Wanted& wanted) const;
  static bool SameTables(const Wanted& a, const Wanted& b);
  absl::StatusOr<std::vector<BuildingModel>> PinModels(const Scope& scope, ModelErrors& errors)
      HPS_REQUIRES(change_mutex_);
  absl::StatusOr<BuildingModel> PinModel(const Wanted& wanted) HPS_REQUIRES(change_mutex_);
  absl::StatusOr<std::unique_ptr<DurableTable>> OpenIncarnation(const std::string& table,
                                                                Incarnation incarnation) const;
  std::vector<BuildingModel> EmptiedModels(const Scope& scope,
                                           const std::vector<Wanted>& wanted) const;
  BudgetRequest RequestFor(const Building& table) const;
  int64_t L2Growth(const BuildingModel& model) const HPS_REQUIRES(change_mutex_);
  uint64_t L2BytesOfOthers(const BuildingModel& model) const HPS_REQUIRES(change_mutex_);
  void DivideL2(std::vector<BuildingModel>& models) HPS_REQUIRES(change_mutex_);
  void DivideL1(std::vector<BuildingModel>& models) const;
  void GiveL1(BuildingModel& model, Building& table, uint64_t l1_bytes) const;
  void OpenAnew(BuildingModel& model, Building& table, uint64_t l2_bytes) const;
  void FitL2(BuildingModel& model) const HPS_REQUIRES(change_mutex_);
  absl::Status Serve(BuildingModel& building) HPS_REQUIRES(change_mutex_);
  std::unique_ptr<LossyTable> OpenL2(Building& table) const;
  absl::StatusOr<std::shared_ptr<ServedTable>> MakeServed(Building& table) const;
  bool MayPreload() const { return !stop_preloading_.load(std::memory_order_relaxed); }
  void Preload(ServedTable& table) const;
  // Of a table that was opened anew, the warmest rows that fit. Whether there were any.
  bool CarryL2(ServedTable& from, const Building& to) const;
  void AdoptL1(const Building& table) const;
  ModelState* FindModel(const std::string& model) const;
  ModelState& FindOrAddModel(const std::string& model);
  const TableConfig* OverrideOf(const std::string& table) const;

  const Parts parts_;
  std::atomic<bool> stop_preloading_{false};
  Mutex change_mutex_;  // one switch at a time; taken before mutex_
  // Bytes of level 2 by table, of those that are served.
  std::map<std::string, uint64_t> l2_bytes_ HPS_GUARDED_BY(change_mutex_);
  mutable Mutex mutex_;
  // Never removed: a model without tables has an empty snapshot.
  std::map<std::string, std::unique_ptr<ModelState>> models_ HPS_GUARDED_BY(mutex_);
  ModelErrors errors_ HPS_GUARDED_BY(mutex_);  // of each model's last switch
  std::set<std::string> unloaded_ HPS_GUARDED_BY(mutex_);
  std::map<std::string, Version> versions_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
