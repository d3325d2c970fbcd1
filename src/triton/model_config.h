// A model's configuration in Triton (config.pbtxt, as JSON): what the backend reads from it, and
// the inputs and outputs that it adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/model_metadata.h"

namespace hps::triton {

// An input or output that config.pbtxt declares.
struct DeclaredTensor {
  std::string name;
  std::string type{};  // "TYPE_INT64"; empty: not said
  // As the backend gets or makes it, with the batch first if there is one; -1 = any; not said.
  std::optional<std::vector<int64_t>> shape{};
};

struct ModelSettings {
  std::string configuration;   // parameter "config": the file hps.toml; empty: not given
  bool is_read_only = false;   // parameter "read_only": another process writes the store
  size_t instance_count = 1;   // of all groups
  bool has_gpu_group = false;  // one of them is of KIND_GPU
  bool is_batched = false;     // max_batch_size > 0: the first dimension is the batch
  std::vector<DeclaredTensor> inputs;
  std::vector<DeclaredTensor> outputs;
  bool outputs_overlap = false;  // hps declared them: those of all ways to ask the model
};

// Errors: INVALID_ARGUMENT (no JSON, a parameter of another form, a parameter of HugeCTR's
// backend).
absl::StatusOr<ModelSettings> ReadModelConfig(std::string_view json);

// The configuration with those inputs and outputs of the model that it can have, if it declares
// none; and with dynamic batching, if it has a batch size and no other scheduling. Errors:
// INVALID_ARGUMENT (also: a name that is not UTF-8, which JSON can't have).
absl::StatusOr<std::string> CompleteModelConfig(std::string_view json,
                                                const ModelMetadata& metadata);

// Errors: INVALID_ARGUMENT: a declared input or output that the model does not have (names the
// nearest), or whose type or shape is none that it can have.
absl::Status CheckDeclared(const ModelSettings& settings, const ModelMetadata& metadata);

}  // namespace hps::triton
