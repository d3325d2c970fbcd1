#include "inference/model_version.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "hps/config.h"

namespace hps {

size_t LookupKeysMax(const Config& config, const ModelManager& models) {
  const uint64_t keys_max = config.server.batch_keys_max;
  return models.devices().empty() ? keys_max
                                  : std::min<uint64_t>(keys_max, config.l1.call_keys_max);
}

absl::Status BehindTheSwitch(const absl::Status& error) {
  return Reworded(error, absl::StrCat(error.message(),
                                      "; the store has switched to the new tables, and requests "
                                      "are answered from the old ones until a load succeeds"));
}

ModelVersion::Options ModelVersion::OptionsFor(const Config& config, const ModelManager& models,
                                               size_t slot_count) {
  Options options{.slot_count = slot_count,
                  .keys_max = LookupKeysMax(config, models),
                  .device_keys_max = config.l1.call_keys_max,
                  .networks_on_devices = config.server.dense_device == DenseDevice::kAuto,
                  .dense_math = config.server.dense_math};
  std::map<int, uint64_t> row_bytes_max;
  for (const LookupDevice& device : models.devices()) {
    options.devices.push_back(device.number);
    row_bytes_max[device.number] = device.prediction_row_bytes_max;
  }
  options.row_bytes_max = [row_bytes_max](int device) { return row_bytes_max.at(device); };
  return options;
}

ModelVersion::ModelVersion(std::unique_ptr<LoadedModel> model, const Options& options,
                           std::unique_ptr<Predictor> predictor)
    : options_(options),
      model_(std::move(model)),
      number_text_(std::to_string(model_->version())),
      predictor_(std::move(predictor)) {
  for (const TableSpec& spec : model_->tables()) {
    const std::string name = spec.name.substr(spec.name.find('/') + 1);
    index_by_name_.emplace(name, static_cast<uint32_t>(tables_.size()));
    tables_.push_back(
        {.name = name, .row_bytes = size_t{spec.dim} * sizeof(float), .dim = spec.dim});
  }
}

absl::StatusOr<ModelVersionRef> ModelVersion::Make(std::unique_ptr<LoadedModel> model,
                                                   const Options& options,
                                                   std::unique_ptr<Predictor> predictor) {
  ModelVersionRef version(new ModelVersion(std::move(model), options, std::move(predictor)));
  HPS_RETURN_IF_ERROR(version->MakeSessions());
  return version;
}

absl::StatusOr<ModelVersionRef> ModelVersion::Open(ModelManager& manager, const std::string& model,
                                                   const Options& options) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> opened, manager.Open(model));
  const auto about_model = [&model](const absl::Status& status) {
    return Reworded(status, absl::StrCat("model '", model, "': ", status.message()));
  };
  HPS_FAULT_POINT("inference.open.before_network");
  std::unique_ptr<Predictor> predictor;
  if (const std::shared_ptr<const ModelNetwork> network = opened->network(); network != nullptr) {
    absl::StatusOr<std::unique_ptr<Predictor>> made = Predictor::Make(
        network, opened->tables(),
        {.devices = options.networks_on_devices ? options.devices : std::vector<int>(),
         .session_count = options.slot_count,
         .math = options.dense_math,
         .keys_max = options.keys_max,
         .call_keys_max = options.device_keys_max,
         .row_bytes_max = options.row_bytes_max},
        model);
    if (!made.ok()) return Public(about_model(made.status()));
    predictor = *std::move(made);
  }
  absl::StatusOr<ModelVersionRef> made = Make(std::move(opened), options, std::move(predictor));
  if (made.ok()) return made;
  const absl::Status error = about_model(made.status());
  return absl::IsResourceExhausted(error) ? Public(error) : error;
}

std::optional<uint32_t> ModelVersion::IndexOfTable(std::string_view name) const {
  const auto found = index_by_name_.find(name);
  if (found == index_by_name_.end()) return std::nullopt;
  return found->second;
}

int ModelVersion::DeviceOf(size_t slot) const {
  return options_.devices.empty() ? -1 : options_.devices[slot % options_.devices.size()];
}

absl::Status ModelVersion::MakeSessions() {
  for (size_t slot = 0; slot < options_.slot_count; ++slot) {
    const int device = DeviceOf(slot);
    const bool predicts_there = predictor_ != nullptr && device >= 0;
    HPS_ASSIGN_OR_RETURN(
        std::unique_ptr<LookupSession> session,
        model_->NewSession({.device = device,
                            .output_dtype = Dtype::kFloat32,
                            .keys_max = predicts_there
                                            ? std::max(options_.keys_max, options_.device_keys_max)
                                            : options_.keys_max}));
    sessions_.push_back(std::move(session));
    if (predictor_ == nullptr) continue;
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<PredictionSession> network,
                         predictor_->NewSession(device));
    prediction_sessions_.push_back(std::move(network));
  }
  return absl::OkStatus();
}

ModelVersionRef ModelVersion::Share() {
  uses_.fetch_add(1, std::memory_order_relaxed);
  return ModelVersionRef(this);
}

void EndModelUse::operator()(ModelVersion* version) const {
  if (version->uses_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::unique_ptr<ModelVersion> last(version);
}

}  // namespace hps
