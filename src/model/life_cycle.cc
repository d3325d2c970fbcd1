#include "model/life_cycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/macros.h"

namespace hps {
namespace {

class PinnedModel final : public LoadedModel {
 public:
  PinnedModel(ServedModels::Pinned pinned, const StoreLifeCycle::Parts& parts)
      : pinned_(std::move(pinned)), parts_(parts) {}

  uint64_t version() const override { return pinned_.version; }
  const std::vector<TableSpec>& tables() const override { return pinned_.tables; }

  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const SessionOptions& options) override {
    HPS_RETURN_IF_ERROR(parts_.l1->CheckDevice(options.device));
    SessionOptions granted = options;
    if (options.device != -1) granted.keys_max = std::min(options.keys_max, parts_.device_keys_max);
    return parts_.sessions->NewPinnedSession(pinned_.pin, granted);
  }

 private:
  const ServedModels::Pinned pinned_;
  const StoreLifeCycle::Parts parts_;
};

}  // namespace

void LogErrors(const ServedModels::ModelErrors& errors, const std::string& except) {
  for (const auto& [model, error] : errors) {
    if (model != except)
      LogWarning(absl::StrCat("a model keeps the tables that it had: ", error.ToString()));
  }
}

absl::Status FirstOf(const absl::StatusOr<ServedModels::ModelErrors>& errors) {
  if (!errors.ok() || errors->empty()) return errors.status();
  LogErrors(*errors, errors->begin()->first);
  return errors->begin()->second;
}

absl::Status StoreLifeCycle::LoadAll() {
  const absl::Status refreshed = parts_.durable->Refresh().status();
  NoteLostImports();
  HPS_RETURN_IF_ERROR(refreshed);
  return FirstOf(parts_.models->Switch(ServedModels::Missing::kIgnored));
}

absl::Status StoreLifeCycle::Load(const std::string& model) {
  const absl::Status refreshed = parts_.durable->Refresh().status();
  const std::set<std::string> lost_now = NoteLostImports();
  HPS_RETURN_IF_ERROR(refreshed);
  const uint64_t version = VersionOf(model);
  HPS_RETURN_IF_ERROR(parts_.models->Load(model));
  MutexLock lock(lost_mutex_);
  auto lost = lost_.find(model);
  if (lost == lost_.end()) lost = lost_.find(std::string());
  if (lost == lost_.end()) return absl::OkStatus();
  // What was lost earlier, and has been imported again since, is no news.
  const bool is_replaced = !lost_now.contains(lost->first) && VersionOf(model) != version;
  const std::string what = std::move(lost->second);
  lost_.erase(lost);
  if (is_replaced) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("model '", model, "': ", what,
                   "; the log has the reason. The tables that it had are served: import it again"));
}

std::set<std::string> StoreLifeCycle::NoteLostImports() {
  std::set<std::string> models;
  MutexLock lock(lost_mutex_);
  for (const LostImport& import : parts_.durable->TakeLostImports()) {
    const std::string model = import.tables.empty() ? std::string() : ModelOf(import.tables[0]);
    const bool is_damaged = absl::IsDataLoss(import.why);
    if (lost_.size() == kTablesPerStoreMax && !lost_.contains(model)) continue;
    lost_[model] = import.tables.empty()
                       ? "an import that was staged for it, or for another model, was damaged and "
                         "has been removed"
                   : is_damaged
                       ? "the import that was staged for it was damaged and has been removed"
                       : "the import that was staged for it can't be taken and has been "
                         "removed";
    models.insert(model);
  }
  return models;
}

uint64_t StoreLifeCycle::VersionOf(const std::string& model) const {
  for (const ModelInfo& info : parts_.models->List()) {
    if (info.name == model) return info.version;
  }
  return 0;
}

absl::Status StoreLifeCycle::Unload(const std::string& model, std::chrono::nanoseconds wait_max) {
  HPS_RETURN_IF_ERROR(parts_.models->Unload(model));
  if (parts_.models->AwaitReclaimed(model, DeadlineAfter(RealClock(), wait_max)))
    return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("model '", model, "' is unloaded, but calls that still run hold its memory"));
}

absl::StatusOr<std::unique_ptr<LoadedModel>> StoreLifeCycle::Open(const std::string& model) {
  HPS_ASSIGN_OR_RETURN(ServedModels::Pinned pinned, parts_.models->Pin(model));
  return std::make_unique<PinnedModel>(std::move(pinned), parts_);
}

std::vector<int> StoreLifeCycle::devices() const {
  std::vector<int> devices;
  for (const DeviceCache* cache : parts_.l1->caches()) devices.push_back(cache->device());
  return devices;
}

}  // namespace hps
