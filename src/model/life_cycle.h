// Store::life_cycle over the parts of an opened store.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
  const Parts parts_;
};

// The first of the errors, and a line in the log for each of the others.
absl::Status FirstOf(const absl::StatusOr<ServedModels::ModelErrors>& errors);

// What no caller hears of goes into the log.
void LogErrors(const ServedModels::ModelErrors& errors, const std::string& except);

}  // namespace hps
