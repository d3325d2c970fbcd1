#include "triton/shared_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "hps/log.h"

namespace hps::triton {
namespace {

// Lookups end by their deadlines; Triton's caller does not wait for longer ones.
constexpr auto kUnloadWaitMax = std::chrono::seconds(30);

struct OpenStores {
  struct Entry {
    std::unique_ptr<SharedStore> store;
    size_t uses = 0;
  };
  Mutex mutex;  // held while a store is opened or closed
  std::map<std::pair<std::string, OpenMode>, Entry> by_path HPS_GUARDED_BY(mutex);
};

OpenStores& Stores() {
  static OpenStores* const stores = new OpenStores;  // for threads that outlive static objects
  return *stores;
}

}  // namespace

ModelVersionRef ServedModel::version() const {
  MutexLock lock(mutex_);
  return version_ == nullptr ? nullptr : version_->Share();
}

absl::StatusOr<SharedStore::Use> SharedStore::Acquire(const std::string& configuration,
                                                      OpenMode mode) {
  std::error_code unknown;
  const std::filesystem::path real = std::filesystem::canonical(configuration, unknown);
  const std::string path = unknown ? configuration : real.string();
  OpenStores& stores = Stores();
  MutexLock lock(stores.mutex);
  const auto found = stores.by_path.find({path, mode});
  if (found != stores.by_path.end()) {
    ++found->second.uses;
    return Use(found->second.store.get());
  }
  HPS_ASSIGN_OR_RETURN(Config config, LoadConfig(path));
  HPS_RETURN_IF_ERROR(ConfigureLog(config.log));
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::Open(config, mode));
  OpenStores::Entry& entry = stores.by_path[{path, mode}];
  entry.store.reset(new SharedStore(std::move(config), std::move(store)));
  entry.uses = 1;
  LogInfo(absl::StrCat("Triton's models of ", path, " share one store"));
  return Use(entry.store.get());
}

void SharedStore::EndUse::operator()(SharedStore* store) const {
  OpenStores& stores = Stores();
  MutexLock lock(stores.mutex);
  for (auto entry = stores.by_path.begin(); entry != stores.by_path.end(); ++entry) {
    if (entry->second.store.get() != store) continue;
    if (--entry->second.uses > 0) return;
    store->store_->models().StopPreloading();
    stores.by_path.erase(entry);
    return;
  }
}

absl::StatusOr<ModelVersionRef> SharedStore::OpenVersion(const std::string& model,
                                                         size_t slot_count) {
  ModelManager& models = store_->models();
  return ModelVersion::Open(models, model, ModelVersion::OptionsFor(config_, models, slot_count));
}

absl::Status SharedStore::Load(ServedModel& model, size_t slot_count) {
  MutexLock change(change_mutex_);
  const absl::Status loaded = store_->models().Load(model.name());
  absl::StatusOr<ModelVersionRef> opened = OpenVersion(model.name(), slot_count);
  const bool was_served = IsServed(model.name());
  if (!opened.ok() || (!loaded.ok() && was_served)) {
    // The store may have switched the tables nevertheless. All models that can be answered from the
    // new tables follow, also the earlier load of this model, which Triton keeps.
    RefreshOthers();
    if (!loaded.ok()) return loaded;
    return was_served ? BehindTheSwitch(opened.status()) : opened.status();
  }
  if (!loaded.ok()) {
    LogWarning(
        absl::StrCat("the load of model '", model.name(),
                     "' has failed, and its current tables are served: ", TextForLog(loaded)));
  }
  {
    MutexLock lock(model.mutex_);
    model.version_ = *std::move(opened);
    model.slots_.assign(slot_count, false);
  }
  models_.push_back(&model);
  RefreshOthers();
  return absl::OkStatus();
}

void SharedStore::Unload(ServedModel& model) {
  MutexLock change(change_mutex_);
  std::erase(models_, &model);
  {
    MutexLock lock(model.mutex_);
    model.version_.reset();
  }
  if (!IsServed(model.name())) {
    const absl::Status unloaded = store_->models().Unload(model.name(), kUnloadWaitMax);
    if (!unloaded.ok() && !absl::IsNotFound(unloaded))
      LogWarning(absl::StrCat("a model was not unloaded: ", TextForLog(unloaded)));
  }
  RefreshOthers();
}

bool SharedStore::IsServed(const std::string& model) const {
  return std::any_of(models_.begin(), models_.end(),
                     [&](const ServedModel* served) { return served->name() == model; });
}

// Several models of Triton may be one model of the store. A load through one of them switches that
// model, and the others' versions would keep the old tables in memory.
void SharedStore::RefreshOthers() {
  for (ServedModel* model : models_) {
    const ModelVersionRef now = model->version();
    if (now->is_current()) continue;
    size_t slot_count = 0;
    {
      MutexLock lock(model->mutex_);
      slot_count = model->slots_.size();
    }
    absl::StatusOr<ModelVersionRef> opened = OpenVersion(model->name(), slot_count);
    if (!opened.ok()) {
      LogWarning(absl::StrCat("model '", model->name(),
                              "' keeps its version: ", TextForLog(opened.status())));
      continue;
    }
    MutexLock lock(model->mutex_);
    model->version_ = *std::move(opened);
  }
}

absl::StatusOr<size_t> SharedStore::TakeSlot(ServedModel& model) {
  MutexLock change(change_mutex_);
  size_t slot = 0;
  {
    MutexLock lock(model.mutex_);
    while (slot < model.slots_.size() && model.slots_[slot]) ++slot;
    if (slot < model.slots_.size()) {
      model.slots_[slot] = true;
      return slot;
    }
  }
  // Triton adds instances to a loaded model when only their number has changed.
  HPS_ASSIGN_OR_RETURN(ModelVersionRef version, OpenVersion(model.name(), 2 * slot));
  MutexLock lock(model.mutex_);
  model.version_ = std::move(version);
  model.slots_.resize(2 * slot, false);
  model.slots_[slot] = true;
  return slot;
}

void SharedStore::ReturnSlot(ServedModel& model, size_t slot) {
  MutexLock lock(model.mutex_);
  model.slots_[slot] = false;
}

}  // namespace hps::triton
