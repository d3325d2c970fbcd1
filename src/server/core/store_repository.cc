#include "server/core/store_repository.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "inference/model_metadata.h"
#include "inference/model_version.h"

namespace hps::server {
namespace {

// Calls end by their deadline, and the longest is an hour; an operator does not wait for that.
constexpr auto kUnloadWaitMax = std::chrono::seconds(30);

std::string WhyUnavailable(const ModelInfo& info) {
  switch (info.condition) {
    case ModelCondition::kNotLoaded:
      return "it is not loaded yet";
    case ModelCondition::kUnloaded:
      return "it was unloaded";
    case ModelCondition::kDropped:
      return "its tables were dropped";
    case ModelCondition::kLoaded:
    case ModelCondition::kFailed:
      break;
  }
  return MessageForClients(info.load_status);
}

}  // namespace

absl::Status LoadTakesNoParameters() {
  return absl::UnimplementedError(
      "a load takes no parameters: a model's tables come by 'hps import', its settings from the "
      "server's configuration");
}

StoreRepository::StoreRepository(ModelManager& manager,
                                 const ModelVersion::Options& version_options,
                                 ModelDirectory& models)
    : manager_(manager), version_options_(version_options), models_(models) {
  for (const ModelInfo& info : manager_.List()) {
    ServerModel& model = models_.FindOrAdd(info.name);
    model.SetUnavailable(WhyUnavailable(info));
    model.SetLoading();
  }
}

std::vector<ModelIndexEntry> StoreRepository::Index() const {
  std::vector<ModelIndexEntry> entries;
  for (const ServerModel* model : models_.models()) entries.push_back(model->index_entry());
  return entries;
}

absl::StatusOr<ModelMetadata> StoreRepository::Metadata(std::string_view name,
                                                        std::string_view version) const {
  const ServerModel* model = models_.Find(name);
  if (model == nullptr) return models_.NoSuchModel(name);
  HPS_ASSIGN_OR_RETURN(const ModelVersionRef use, model->FindVersion(version));
  return DescribeModel(model->name(), *use);
}

bool StoreRepository::ServerReady() const {
  return loaded_once_.load(std::memory_order_acquire) &&
         !any_failed_.load(std::memory_order_relaxed) && !draining_.load(std::memory_order_relaxed);
}

absl::Status StoreRepository::Load(std::string_view name) {
  MutexLock change(change_mutex_);
  if (ServerModel* known = models_.Find(name)) known->SetLoading();
  absl::Status loaded = manager_.Load(std::string(name));
  const absl::Status served = Refresh(name);
  if (loaded.ok()) loaded = served;
  const ServerModel* const model = models_.Find(name);
  if (!loaded.ok()) {
    const bool is_served = model != nullptr && model->index_entry().state == ModelState::kReady;
    LogWarning(absl::StrCat(
        "the load of model '", std::string(name),
        is_served ? "' has failed, and its current tables are served: " : "' has failed: ",
        TextForLog(loaded)));
  } else if (model != nullptr) {
    LogInfo(absl::StrCat("model '", model->name(), "' was loaded: version ",
                         model->index_entry().version));
  }
  return ForClients(loaded);
}

absl::Status StoreRepository::Unload(std::string_view name) {
  MutexLock change(change_mutex_);
  ServerModel* model = models_.Find(name);
  if (model == nullptr) return models_.NoSuchModel(name);
  model->SetUnavailable("it was unloaded");
  const absl::Status unloaded = manager_.Unload(model->name(), kUnloadWaitMax);
  Refresh().IgnoreError();  // each model says why it is not served
  if (unloaded.ok()) {
    LogInfo(absl::StrCat("model '", model->name(), "' was unloaded"));
  } else {
    LogWarning(absl::StrCat("a model was not unloaded: ", TextForLog(unloaded)));
  }
  return ForClients(unloaded);
}

absl::Status StoreRepository::LoadAll() {
  MutexLock change(change_mutex_);
  for (ServerModel* model : models_.models()) model->SetLoading();
  absl::Status loaded = manager_.LoadAll();
  const absl::Status served = Refresh();
  if (loaded.ok()) loaded = absl::Status(served.code(), served.message());
  // If the load failed before it came to the models, Refresh sets this when a load of each model
  // has been tried.
  if (loaded.ok()) loaded_once_.store(true, std::memory_order_release);
  return loaded;
}

void StoreRepository::Close() {
  MutexLock change(change_mutex_);
  for (ServerModel* model : models_.models()) model->SetUnavailable("the server is shutting down");
}

// A load of one model may have committed imports of others, and the state of each counts for
// readiness, so all models are visited.
absl::Status StoreRepository::Refresh(std::string_view only) {
  bool any_failed = false;
  absl::Status first_error;
  const std::vector<ModelInfo> models = manager_.List();
  bool all_tried = !models.empty();
  for (const ModelInfo& info : models) {
    const absl::Status served = RefreshModel(info);
    if (only.empty() || only == info.name) first_error.Update(served);
    any_failed |= info.condition == ModelCondition::kFailed ||
                  (!served.ok() && !models_.FindOrAdd(info.name).version());
    all_tried &= info.condition != ModelCondition::kNotLoaded;
  }
  if (all_tried) loaded_once_.store(true, std::memory_order_release);
  any_failed_.store(any_failed, std::memory_order_relaxed);
  return first_error;
}

// A model whose new network is refused keeps the version that it serves.
absl::Status StoreRepository::RefreshModel(const ModelInfo& info) {
  ServerModel& model = models_.FindOrAdd(info.name);
  if (info.condition != ModelCondition::kLoaded) {
    model.SetUnavailable(WhyUnavailable(info));
    return absl::OkStatus();
  }
  ModelVersionRef now = model.version();
  if (now && now->is_current()) {
    model.SetReady(std::move(now), MessageForClients(info.load_status));
    return absl::OkStatus();
  }
  absl::StatusOr<ModelVersionRef> opened =
      ModelVersion::Open(manager_, info.name, version_options_);
  if (opened.ok()) {
    model.SetReady(*std::move(opened), MessageForClients(info.load_status));
    return absl::OkStatus();
  }
  LogWarning(absl::StrCat("a model can't be served: ", TextForLog(opened.status())));
  if (now && IsPublic(opened.status())) {
    model.SetReady(std::move(now), MessageForClients(opened.status()));
  } else {
    model.SetUnavailable(MessageForClients(opened.status()));
  }
  return opened.status();
}

}  // namespace hps::server
