// ModelRepository over the life cycle of a store: what the store has loaded becomes versions that
// calls are answered from.
//
// Thread-safe. One load or unload runs at a time; calls go on meanwhile.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "hps/model_manager.h"
#include "inference/model_version.h"
#include "server/core/model_repository.h"
#include "server/core/server_model.h"

namespace hps::server {

class StoreRepository final : public ModelRepository {
 public:
  // `manager` and `models` are borrowed. Knows the names of the models from the start. Clients get
  // the messages of public errors only (base/public_message.h); the log gets all of them.
  StoreRepository(ModelManager& manager, const ModelVersion::Options& version_options,
                  ModelDirectory& models);

  std::vector<ModelIndexEntry> Index() const override;
  absl::StatusOr<ModelMetadata> Metadata(std::string_view model,
                                         std::string_view version) const override;
  bool ServerReady() const override;
  absl::Status Load(std::string_view model) override;
  absl::Status Unload(std::string_view model) override;

  // Loads every model. Errors: of the first that could not be loaded; the others are.
  absl::Status LoadAll();

  bool draining() const { return draining_.load(std::memory_order_relaxed); }
  void BeginDrain() { draining_.store(true, std::memory_order_relaxed); }

  // Lets go of every version, so that the store can be closed. Calls that run keep theirs.
  void Close();

 private:
  // Returns the error of the first model whose newest version can't be served; of `only`, if it is
  // not empty.
  absl::Status Refresh(std::string_view only = {}) HPS_REQUIRES(change_mutex_);
  absl::Status RefreshModel(const ModelInfo& info) HPS_REQUIRES(change_mutex_);

  ModelManager& manager_;
  const ModelVersion::Options version_options_;
  ModelDirectory& models_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> loaded_once_{false};
  std::atomic<bool> any_failed_{false};
  Mutex change_mutex_;
};

}  // namespace hps::server
