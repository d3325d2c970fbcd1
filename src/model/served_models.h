// The models that a store serves: gives their tables levels within the budgets, and switches whole
// models to what the store has.
//
// Thread-safe. Running calls end on the tables that they began with; a table whose incarnation has
// not changed keeps its levels and what they hold. While a model switches, the rows of level 2 of
// its old and its new tables may both be held for a moment.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "hps/config.h"
#include "hps/lookup_session.h"
#include "hps/statistics.h"
#include "model/tier_factory.h"
#include "query/model_state.h"
#include "query/session_factory.h"
#include "tier/durable_tier.h"

namespace hps {

class ServedModels {
 public:
  // All borrowed; they must outlive this object, but for the executors: end those first, and the
  // sessions before them.
  struct Parts {
    const Config* config = nullptr;
    DurableStore* durable = nullptr;
    const L2Tier* l2 = nullptr;
    SessionFactory* sessions = nullptr;
    Executor* reclaim = nullptr;
  };

  explicit ServedModels(const Parts& parts) : parts_(parts) {}
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  // What a model or table that the configuration names and the store lacks is.
  enum class Missing { kError, kIgnored };

  // Brings every model to the tables that the store has now, each model in one step.
  // Errors: RESOURCE_EXHAUSTED (the budgets), NOT_FOUND (see Missing), UNAVAILABLE (the store keeps
  // changing), those of the tiers. A model that failed keeps its old tables; the others have
  // switched.
  absl::Status Switch(Missing missing);

  // Errors: those of Store::NewSession.
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const std::string& model,
                                                            const SessionOptions& options);

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
    std::unique_ptr<DurableTable> l3;  // null when `served` was there before
    std::shared_ptr<ServedTable> served;
    uint64_t l2_bytes = 0;
  };
  struct BuildingModel {
    std::string model;
    std::vector<Building> tables;
    bool changed = false;
  };

  absl::StatusOr<std::vector<Wanted>> WantedModels(Missing missing) const;
  absl::Status ApplyDeclaredOrder(const ModelConfig& config, Missing missing, Wanted& wanted) const;
  absl::StatusOr<std::vector<BuildingModel>> PinTables(Missing missing) HPS_REQUIRES(change_mutex_);
  absl::StatusOr<bool> PinWanted(const Wanted& wanted, BuildingModel& building)
      HPS_REQUIRES(change_mutex_);
  absl::Status DivideL2(std::vector<BuildingModel*> models) HPS_REQUIRES(change_mutex_);
  absl::Status Serve(BuildingModel& building) HPS_REQUIRES(change_mutex_);
  absl::StatusOr<std::shared_ptr<ServedTable>> MakeServed(Building& table) const;
  void Preload(const BuildingModel& building) const;
  ModelState* FindModel(const std::string& model) const;
  ModelState& FindOrAddModel(const std::string& model);
  const TableConfig* OverrideOf(const std::string& table) const;

  const Parts parts_;
  Mutex change_mutex_;  // one switch at a time; taken before mutex_
  // Bytes of level 2 by table, of those that are served.
  std::map<std::string, uint64_t> l2_bytes_ HPS_GUARDED_BY(change_mutex_);
  mutable Mutex mutex_;
  // Never removed: a model without tables has an empty snapshot.
  std::map<std::string, std::unique_ptr<ModelState>> models_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
