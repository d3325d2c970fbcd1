#include "serving/model_registry.h"

#include "absl/strings/str_cat.h"
#include "base/public_message.h"
#include "types/names.h"

namespace hps {

LiveModel* ModelRegistry::Find(std::string_view model) const {
  MutexLock lock(mutex_);
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : found->second.get();
}

LiveModel& ModelRegistry::FindOrAdd(const std::string& model) {
  MutexLock lock(mutex_);
  std::unique_ptr<LiveModel>& live = models_[model];
  if (live == nullptr) live = std::make_unique<LiveModel>(model, domain_, reclaim_executor_);
  return *live;
}

std::vector<LiveModel*> ModelRegistry::models() const {
  MutexLock lock(mutex_);
  std::vector<LiveModel*> models;
  for (const auto& [name, model] : models_) models.push_back(model.get());
  return models;
}

std::shared_ptr<LiveTable> ModelRegistry::FindTable(std::string_view table) const {
  const LiveModel* const model = Find(ModelOf(std::string(table)));
  return model == nullptr ? nullptr : model->CurrentTable(table);
}

absl::StatusOr<WriteLease> ModelRegistry::AcquireWriter(const std::string& table,
                                                        Deadline deadline) {
  const std::string model = ModelOf(table);
  {
    MutexLock lock(mutex_);
    Access& access = access_[model];
    while (access.switching || access.writing.contains(table)) {
      if (changed_.WaitUntil(mutex_, deadline)) continue;
      return Public(absl::UnavailableError(
          access.switching
              ? absl::StrCat("table '", table, "': model '", model, "' is being loaded")
              : absl::StrCat("table '", table, "': another change is being applied")));
    }
    access.writing.insert(table);
  }
  WriteLease lease(this, table);
  lease.live_ = FindTable(table);
  return lease;
}

absl::StatusOr<SwitchLease> ModelRegistry::BlockWriters(const std::string& model,
                                                        Deadline deadline) {
  MutexLock lock(mutex_);
  Access& access = access_[model];
  while (access.switching) {
    if (changed_.WaitUntil(mutex_, deadline)) continue;
    return Public(
        absl::UnavailableError(absl::StrCat("another load of model '", model, "' is running")));
  }
  access.switching = true;
  while (!access.writing.empty()) {
    if (changed_.WaitUntil(mutex_, deadline)) continue;
    access.switching = false;
    changed_.NotifyAll();
    return Public(absl::UnavailableError(
        absl::StrCat("the applier of table '", *access.writing.begin(),
                     "' did not finish its change in time; the current tables stay: try again")));
  }
  return SwitchLease(this, {model});
}

void ModelRegistry::EndWrite(const std::string& table) {
  MutexLock lock(mutex_);
  access_[ModelOf(table)].writing.erase(table);
  changed_.NotifyAll();
}

void EndSwitch::operator()(ModelRegistry* registry) const {
  MutexLock lock(registry->mutex_);
  registry->access_[model].switching = false;
  registry->changed_.NotifyAll();
}

}  // namespace hps
