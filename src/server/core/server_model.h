// One model as the server knows it: which version it serves now, its waiting calls, its counters.
//
// Never removed once it is known: an unloaded model keeps its counters and says why it is not
// ready. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "inference/model_version.h"
#include "server/core/batch_queue.h"
#include "server/core/model_counters.h"
#include "server/core/model_repository.h"

namespace hps::server {

class ServerModel {
 public:
  explicit ServerModel(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // Empty while it is not ready.
  ModelVersionRef version() const;
  // Errors: UNAVAILABLE with the reason; NOT_FOUND when `version` is neither empty nor that.
  absl::StatusOr<ModelVersionRef> FindVersion(std::string_view version) const;
  ModelIndexEntry index_entry() const;

  // Serves `version` from now on; calls that hold the old one end on it.
  void SetReady(ModelVersionRef version, std::string reason);
  // Serves nothing from now on.
  void SetUnavailable(std::string reason);
  // As it is, but it says that it is being loaded.
  void SetLoading();

  ModelQueue queue;
  ModelCounters counters;

 private:
  const std::string name_;
  mutable Mutex mutex_;
  ModelVersionRef version_ HPS_GUARDED_BY(mutex_);
  ModelIndexEntry entry_ HPS_GUARDED_BY(mutex_);
};

class ModelDirectory {
 public:
  ServerModel* Find(std::string_view name) const;  // null when it is not known
  ServerModel& FindOrAdd(const std::string& name);
  std::vector<ServerModel*> models() const;  // by name
  // Names the nearest model.
  absl::Status NoSuchModel(std::string_view name) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<ServerModel>, std::less<>> models_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps::server
