// Store::models over the parts of an opened store.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hps/model_manager.h"
#include "node/device_level.h"
#include "node/served_models.h"
#include "query/session_factory.h"
#include "tier/durable_tier.h"
#include "update/stream_reader.h"
#include "update/update_service.h"

namespace hps {

// Handles and sessions made here keep `resources` alive, which owns the other parts; the manager
// itself does so, too. Thread-safe.
class StoreModelManager final : public ModelManager {
 public:
  struct Parts {
    DurableStore* durable = nullptr;
    DeviceLevel* l1 = nullptr;
    SessionFactory* sessions = nullptr;
    ServedModels* models = nullptr;
    UpdateService* updates = nullptr;
    StreamReader* stream = nullptr;  // null without an update stream
    size_t device_keys_max = 0;      // of a session on a device
    std::shared_ptr<void> resources{};
  };

  explicit StoreModelManager(const Parts& parts) : parts_(parts) {}

  std::vector<ModelInfo> List() const override { return parts_.models->List(); }
  absl::Status LoadAll() override;
  absl::Status Load(const std::string& model) override;
  absl::Status Unload(const std::string& model, std::chrono::nanoseconds wait_max) override;
  absl::StatusOr<std::unique_ptr<LoadedModel>> Open(const std::string& model) override;
  std::shared_ptr<void> Follow(const std::string& model,
                               std::function<absl::Status()> on_switch) override {
    return parts_.models->Follow(model, std::move(on_switch));
  }
  absl::Status RefreshLevel1(const std::string& model, std::chrono::nanoseconds timeout) override;
  void StopPreloading() override {
    parts_.models->StopPreloading();
    if (parts_.stream != nullptr) parts_.stream->StopWaiting();
  }
  absl::StatusOr<std::optional<ModelNetwork>> ImportedNetwork(
      const std::string& model) const override {
    return parts_.durable->Network(model);
  }
  std::vector<LookupDevice> devices() const override;

  // As Store::NewSession.
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const std::string& model,
                                                            const SessionOptions& options);

 private:
  const Parts parts_;
};

// Returns the first error and logs the others.
absl::Status FirstError(const absl::StatusOr<ServedModels::ModelErrors>& errors);

// Logs the errors of all models but `except`, which the caller returns.
void LogErrors(const ServedModels::ModelErrors& errors, const std::string& except);

}  // namespace hps
