#include "server/core/server_model.h"

#include "absl/strings/str_cat.h"
#include "types/names.h"

namespace hps::server {

ModelVersionRef ServerModel::version() const {
  MutexLock lock(mutex_);
  return version_ == nullptr ? nullptr : version_->Share();
}

absl::StatusOr<ModelVersionRef> ServerModel::FindVersion(std::string_view version) const {
  ModelVersionRef use = this->version();
  if (!use) {
    const std::string reason = index_entry().reason;
    return absl::UnavailableError(
        absl::StrCat("model '", name_, "' is not ready", reason.empty() ? "" : ": ", reason));
  }
  if (version.empty() || version == use->number_text()) return use;
  return absl::NotFoundError(absl::StrCat("model '", name_, "' has version ", use->number_text(),
                                          ", not '",
                                          absl::string_view(version.data(), version.size()), "'"));
}

ModelIndexEntry ServerModel::index_entry() const {
  MutexLock lock(mutex_);
  ModelIndexEntry entry = entry_;
  entry.name = name_;
  return entry;
}

void ServerModel::SetReady(ModelVersionRef version, std::string reason) {
  ModelVersionRef former;  // ends outside the lock
  {
    MutexLock lock(mutex_);
    former = std::move(version_);
    version_ = std::move(version);
    entry_.version = version_->number_text();
    entry_.state = ModelState::kReady;
    entry_.reason = std::move(reason);
  }
}

void ServerModel::SetUnavailable(std::string reason) {
  ModelVersionRef former;
  {
    MutexLock lock(mutex_);
    former = std::move(version_);
    entry_.state = ModelState::kUnavailable;
    entry_.reason = std::move(reason);
  }
}

void ServerModel::SetLoading() {
  MutexLock lock(mutex_);
  entry_.state = ModelState::kLoading;
}

ServerModel* ModelDirectory::Find(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : found->second.get();
}

ServerModel& ModelDirectory::FindOrAdd(const std::string& name) {
  MutexLock lock(mutex_);
  std::unique_ptr<ServerModel>& model = models_[name];
  if (model == nullptr) model = std::make_unique<ServerModel>(name);
  return *model;
}

std::vector<ServerModel*> ModelDirectory::models() const {
  MutexLock lock(mutex_);
  std::vector<ServerModel*> models;
  for (const auto& [name, model] : models_) models.push_back(model.get());
  return models;
}

absl::Status ModelDirectory::NoSuchModel(std::string_view name) const {
  std::vector<std::string> names;
  for (const ServerModel* model : models()) names.push_back(model->name());
  return absl::NotFoundError(absl::StrCat("there is no model '",
                                          absl::string_view(name.data(), name.size()), "'",
                                          NearestNameHint(name, names)));
}

}  // namespace hps::server
