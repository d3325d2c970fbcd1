#include "server/core/store_repository.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "inference/predictor.h"
#include "server/core/prediction_plan.h"
#include "server/core/request_plan.h"

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

TensorMetadata Tensor(std::string name, Datatype datatype, std::vector<int64_t> shape) {
  return {.name = std::move(name), .datatype = datatype, .shape = std::move(shape)};
}

std::vector<int64_t> BatchOf(const std::vector<int64_t>& sample_dims) {
  std::vector<int64_t> dims = {-1};
  dims.insert(dims.end(), sample_dims.begin(), sample_dims.end());
  return dims;
}

// What a request for predictions brings beside the tables' keys, and what it gets.
void AddNetwork(const ModelVersion& version, ModelMetadata& metadata) {
  const NetworkSignature& signature = version.predictor()->signature();
  std::vector<bool> is_read(version.tables().size());
  for (const NetworkSignature::Input& input : signature.inputs) {
    if (input.table.has_value()) {
      is_read[*input.table] = true;
    } else {
      metadata.inputs.push_back(
          Tensor(input.name, DatatypeOf(input.element), BatchOf(input.sample_dims)));
    }
  }
  for (size_t i = 0; i < is_read.size(); ++i) {
    if (!is_read[i]) continue;
    metadata.inputs.push_back(
        Tensor(version.tables()[i].name + std::string(kOffsetsSuffix), Datatype::kInt64, {-1}));
  }
  for (const NetworkSignature::Output& output : signature.outputs)
    metadata.outputs.push_back(Tensor(output.name, Datatype::kFp32, BatchOf(output.sample_dims)));
  if (!HasDesConvention(version)) return;
  metadata.inputs.push_back(Tensor(std::string(kDenseInput), Datatype::kFp32, {1, -1}));
  metadata.inputs.push_back(Tensor(std::string(kColumnsInput), Datatype::kInt64, {1, -1}));
  metadata.inputs.push_back(Tensor(std::string(kRowIndexInput), Datatype::kInt32, {1, -1}));
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
  ModelMetadata metadata{.name = model->name(), .version = use->number_text()};
  metadata.tables.assign(use->specs().begin(), use->specs().end());
  if (use->predictor() != nullptr) AddNetwork(*use, metadata);
  for (const ModelVersion::Table& table : use->tables()) {
    metadata.inputs.push_back(Tensor(table.name, Datatype::kInt64, {-1}));
    metadata.outputs.push_back(
        Tensor(table.name, Datatype::kFp32, {-1, static_cast<int64_t>(table.dim)}));
    metadata.outputs.push_back(
        Tensor(table.name + std::string(kStatusSuffix), Datatype::kUint8, {-1}));
  }
  if (HasKeysConvention(*use)) {
    const auto table_count = static_cast<int64_t>(use->tables().size());
    metadata.inputs.push_back(Tensor(std::string(kKeysInput), Datatype::kInt64, {1, -1}));
    metadata.inputs.push_back(
        Tensor(std::string(kKeyCountsInput), Datatype::kInt32, {1, table_count}));
  }
  if (HasKeysConvention(*use) || HasDesConvention(*use))
    metadata.outputs.push_back(Tensor(std::string(kRowsOutput), Datatype::kFp32, {-1}));
  return metadata;
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
    LogWarning(absl::StrCat(is_served ? "a load has failed, and its model is served all the same: "
                                      : "a model was not loaded: ",
                            TextForLog(loaded)));
  } else if (model != nullptr) {
    LogInfo(absl::StrCat("model '", model->name(), "' was loaded: version ",
                         model->index_entry().version));
  }
  return absl::Status(loaded.code(), MessageForClients(loaded));
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
  return absl::Status(unloaded.code(), MessageForClients(unloaded));
}

absl::Status StoreRepository::LoadAll() {
  MutexLock change(change_mutex_);
  for (ServerModel* model : models_.models()) model->SetLoading();
  absl::Status loaded = manager_.LoadAll();
  const absl::Status served = Refresh();
  if (loaded.ok()) loaded = absl::Status(served.code(), served.message());
  // Where it ended before it came to the models, the server is ready when each has been loaded.
  if (loaded.ok()) loaded_once_.store(true, std::memory_order_release);
  return loaded;
}

void StoreRepository::Close() {
  MutexLock change(change_mutex_);
  for (ServerModel* model : models_.models()) model->SetUnavailable("the server is shutting down");
}

// A load may have re-created levels of other models, because budgets are divided again. A version
// of such a model is replaced, too: it would keep the old levels in memory.
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

absl::StatusOr<ModelVersionRef> StoreRepository::OpenVersion(const std::string& model) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> opened, manager_.Open(model));
  std::unique_ptr<Predictor> predictor;
  if (const std::shared_ptr<const ModelNetwork> network = opened->network(); network != nullptr) {
    absl::StatusOr<std::unique_ptr<Predictor>> made =
        Predictor::Make(network, opened->tables(),
                        {.sessions = static_cast<uint32_t>(version_options_.slot_count)});
    if (!made.ok()) {
      return Public(absl::Status(made.status().code(),
                                 absl::StrCat("model '", model, "': ", made.status().message())));
    }
    predictor = *std::move(made);
  }
  return ModelVersion::Make(std::move(opened), version_options_, std::move(predictor));
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
  absl::StatusOr<ModelVersionRef> opened = OpenVersion(info.name);
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
