// Store::life_cycle over the parts of an opened store.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "hps/model_life_cycle.h"
#include "model/device_level.h"
#include "model/served_models.h"
#include "query/session_factory.h"
#include "tier/durable_tier.h"

namespace hps {

// Thread-safe. Borrows its parts.
class StoreLifeCycle final : public ModelLifeCycle {
 public:
  struct Parts {
    DurableStore* durable = nullptr;
    DeviceLevel* l1 = nullptr;
    SessionFactory* sessions = nullptr;
    ServedModels* models = nullptr;
    size_t device_keys_max = 0;  // of a session on a device
  };

  explicit StoreLifeCycle(const Parts& parts) : parts_(parts) {}

  std::vector<ModelInfo> List() const override { return parts_.models->List(); }
  absl::Status LoadAll() override;
  absl::Status Load(const std::string& model) override;
  absl::Status Unload(const std::string& model, std::chrono::nanoseconds wait_max) override;
  absl::StatusOr<std::unique_ptr<LoadedModel>> Open(const std::string& model) override;
  void StopPreloading() override { parts_.models->StopPreloading(); }
  std::vector<int> devices() const override;

 private:
  // Takes note of imports that were given up, by model, and returns which models those are.
  std::set<std::string> NoteLostImports();
  uint64_t VersionOf(const std::string& model) const;

  const Parts parts_;
  Mutex lost_mutex_;
  // By model, "" for one that nobody can tell: what its next load is to be told of an import that
  // was given up.
  std::map<std::string, std::string> lost_ HPS_GUARDED_BY(lost_mutex_);
};

// The first of the errors, and a line in the log for each of the others.
absl::Status FirstOf(const absl::StatusOr<ServedModels::ModelErrors>& errors);

// What no caller hears of goes into the log.
void LogErrors(const ServedModels::ModelErrors& errors, const std::string& except);

}  // namespace hps
