#include "triton/triton_model.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "inference/model_metadata.h"
#include "inference/request_plan.h"
#include "triton/triton_status.h"

namespace hps::triton {
namespace {

absl::StatusOr<std::string> ConfigOf(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelConfig(model, 1, &message)));
  return TakeJson(message);
}

// The file that the model names; relative to the model's folder, as other files of a model are.
absl::StatusOr<std::string> ConfigurationFile(TRITONBACKEND_Model* model,
                                              const ModelSettings& settings) {
  if (settings.configuration.empty()) {
    return absl::InvalidArgumentError(
        "config.pbtxt does not say where hps.toml is: parameters { key: \"config\" value: { "
        "string_value: \"/path/hps.toml\" } }");
  }
  int type = 0;
  const char* folder = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelRepository(model, &type, &folder)));
  return (std::filesystem::path(folder) / settings.configuration).string();
}

absl::Status With(const absl::Status& status, const std::string& where) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TritonModel>> TritonModel::Load(TRITONBACKEND_Model* model) {
  const char* name = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelName(model, &name)));
  std::unique_ptr<TritonModel> loaded(new TritonModel(name));
  const absl::Status opened = Try([&] { return loaded->Open(model); });
  if (!opened.ok()) return With(opened, absl::StrCat("hps: model '", name, "'"));
  return loaded;
}

TritonModel::~TritonModel() {
  if (is_loaded_) store_->Unload(served_);
}

absl::Status TritonModel::Open(TRITONBACKEND_Model* model) {
  HPS_ASSIGN_OR_RETURN(const std::string json, ConfigOf(model));
  HPS_ASSIGN_OR_RETURN(settings_, ReadModelConfig(json));
  if (settings_.has_gpu_group) return NoGpuInstances();
  HPS_ASSIGN_OR_RETURN(const std::string file, ConfigurationFile(model, settings_));
  absl::StatusOr<SharedStore::Use> store =
      SharedStore::Acquire(file, settings_.is_read_only ? OpenMode::kReadOnly : OpenMode::kServe);
  if (!store.ok()) return With(store.status(), file);
  store_ = *std::move(store);
  const absl::Status loaded = store_->Load(served_, settings_.instance_count);
  if (!loaded.ok()) return With(loaded, file);
  is_loaded_ = true;
  return Complete(model, json);
}

absl::Status TritonModel::Complete(TRITONBACKEND_Model* model, const std::string& json) {
  const ModelVersionRef version = served_.version();
  const ModelMetadata metadata = DescribeModel(name(), *version);
  HPS_RETURN_IF_ERROR(CheckDeclared(settings_, metadata));
  bool is_wanted = false;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelAutoCompleteConfig(model, &is_wanted)));
  if (!is_wanted) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const std::string completed, CompleteModelConfig(json, metadata));
  TRITONSERVER_Message* message = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(
      TRITONSERVER_MessageNewFromSerializedJson(&message, completed.data(), completed.size())));
  const absl::Status set = FromTriton(TRITONBACKEND_ModelSetConfig(model, 1, message));
  HPS_RETURN_IF_ERROR(FromTriton(TRITONSERVER_MessageDelete(message)));
  HPS_RETURN_IF_ERROR(set);
  const bool are_mine = settings_.outputs.empty();
  HPS_ASSIGN_OR_RETURN(settings_, ReadModelConfig(completed));
  settings_.outputs_overlap =
      are_mine && (version->predictor() != nullptr || HasKeysConvention(*version));
  return absl::OkStatus();
}

absl::Status NoGpuInstances() {
  return absl::UnimplementedError(
      "instance_group has KIND_GPU, but hps executes on KIND_CPU instances: which GPUs hold rows "
      "is said by [l1] devices in hps.toml");
}

}  // namespace hps::triton
