#include "inference/model_version.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "hps/config.h"

namespace hps {

size_t LookupKeysMax(const Config& config, const ModelManager& models) {
  const uint64_t keys_max = config.server.batch_keys_max;
  return models.devices().empty() ? keys_max
                                  : std::min<uint64_t>(keys_max, config.l1.call_keys_max);
}

ModelVersion::ModelVersion(std::unique_ptr<LoadedModel> model, const Options& options,
                           std::unique_ptr<Predictor> predictor)
    : options_(options),
      model_(std::move(model)),
      number_text_(std::to_string(model_->version())),
      predictor_(std::move(predictor)),
      sessions_(options.slot_count),
      prediction_sessions_(options.slot_count) {
  for (const TableSpec& spec : model_->tables()) {
    const std::string name = spec.name.substr(spec.name.find('/') + 1);
    index_by_name_.emplace(name, static_cast<uint32_t>(tables_.size()));
    tables_.push_back(
        {.name = name, .row_bytes = size_t{spec.dim} * sizeof(float), .dim = spec.dim});
  }
}

ModelVersionRef ModelVersion::Make(std::unique_ptr<LoadedModel> model, const Options& options,
                                   std::unique_ptr<Predictor> predictor) {
  return ModelVersionRef(new ModelVersion(std::move(model), options, std::move(predictor)));
}

absl::StatusOr<ModelVersionRef> ModelVersion::Open(ModelManager& manager, const std::string& model,
                                                   const Options& options) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> opened, manager.Open(model));
  std::unique_ptr<Predictor> predictor;
  if (const std::shared_ptr<const ModelNetwork> network = opened->network(); network != nullptr) {
    absl::StatusOr<std::unique_ptr<Predictor>> made = Predictor::Make(
        network, opened->tables(),
        {.model = model,
         .sessions = static_cast<uint32_t>(options.slot_count),
         .devices = options.networks_on_devices ? options.devices : std::vector<int>(),
         .row_bytes_max =
             [&manager](int device) { return manager.prediction_row_bytes_max(device); },
         .math = options.dense_math});
    if (!made.ok()) {
      return Public(absl::Status(made.status().code(),
                                 absl::StrCat("model '", model, "': ", made.status().message())));
    }
    predictor = *std::move(made);
  }
  return Make(std::move(opened), options, std::move(predictor));
}

std::optional<uint32_t> ModelVersion::IndexOfTable(std::string_view name) const {
  const auto found = index_by_name_.find(name);
  if (found == index_by_name_.end()) return std::nullopt;
  return found->second;
}

int ModelVersion::DeviceOf(size_t slot) const {
  return options_.devices.empty() ? -1 : options_.devices[slot % options_.devices.size()];
}

absl::StatusOr<LookupSession*> ModelVersion::session(size_t slot) {
  std::unique_ptr<LookupSession>& session = sessions_[slot];
  if (session == nullptr) {
    const int device = DeviceOf(slot);
    const bool predicts_there = predictor_ != nullptr && device >= 0;
    HPS_ASSIGN_OR_RETURN(
        session, model_->NewSession({.device = device,
                                     .output_dtype = Dtype::kFloat32,
                                     .keys_max = predicts_there ? std::max(options_.keys_max,
                                                                           options_.device_keys_max)
                                                                : options_.keys_max}));
  }
  return session.get();
}

absl::StatusOr<PredictionSession*> ModelVersion::prediction_session(size_t slot) {
  std::unique_ptr<PredictionSession>& session = prediction_sessions_[slot];
  if (session == nullptr) {
    HPS_ASSIGN_OR_RETURN(session, predictor_->NewSession(DeviceOf(slot)));
  }
  return session.get();
}

ModelVersionRef& ModelVersionRef::operator=(ModelVersionRef&& other) noexcept {
  if (this != &other) {
    Release();
    version_ = std::exchange(other.version_, nullptr);
  }
  return *this;
}

ModelVersionRef ModelVersionRef::Share() const {
  if (version_ != nullptr) version_->uses_.fetch_add(1, std::memory_order_relaxed);
  return ModelVersionRef(version_);
}

void ModelVersionRef::Release() {
  ModelVersion* version = std::exchange(version_, nullptr);
  if (version == nullptr || version->uses_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::unique_ptr<ModelVersion> last(version);
}

}  // namespace hps
