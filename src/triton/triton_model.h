// A model that Triton has loaded with this backend. One instance of Triton executes requests of it
// with one RequestBatch.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "triton/key_metrics.h"
#include "triton/model_config.h"
#include "triton/shared_store.h"
#include "triton/triton_api.h"

namespace hps::triton {

// Why an instance of KIND_GPU is refused.
absl::Status NoGpuInstances();

class TritonModel {
 public:
  // Loads the model of its name from the store of its configuration file, and completes what its
  // config.pbtxt leaves open, if Triton wants that. Errors name the model, the file and the reason.
  static absl::StatusOr<std::unique_ptr<TritonModel>> Load(TRITONBACKEND_Model* model);
  ~TritonModel();

  const std::string& name() const { return served_.name(); }
  const ModelSettings& settings() const { return settings_; }
  const SharedStore::Use& store() const { return store_; }
  ServedModel& served() { return served_; }
  const ServedModel& served() const { return served_; }
  KeyMetrics& metrics() { return metrics_; }

 private:
  explicit TritonModel(const std::string& name) : served_(name), metrics_(name) {}

  absl::Status Open(TRITONBACKEND_Model* model);
  absl::Status Complete(TRITONBACKEND_Model* model, const std::string& json);

  ModelSettings settings_;
  SharedStore::Use store_;
  ServedModel served_;
  bool is_loaded_ = false;
  KeyMetrics metrics_;
};

}  // namespace hps::triton
