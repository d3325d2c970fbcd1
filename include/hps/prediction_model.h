// Predictions of a model of an open store, without a server: keys and other inputs in, the outputs
// of its dense network (click probabilities) out.
//
//   auto model = PredictionModel::Open(*store, "dlrm", config);
//   const std::array inputs = {ModelInput::Keys("user", users, {batch}),
//                              ModelInput::Floats("dense", numbers, {batch, 13})};
//   auto outputs = (*model)->Predict({.inputs = inputs});
//   std::span<const float> scores = (*outputs)[0].floats();
//
// It answers what a server answers to the same tensors, and with the same errors: both are the same
// code. docs/ctr_models.md and docs/server.md describe inputs and outputs.
//
// In the library of src/inference (target hps_predict), which the package that `cmake --install`
// makes does not have yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/store.h"
#include "hps/types.h"

namespace hps {

// An input by name. The caller owns its memory, and keeps it during the call.
//
// An input with the name of a table has its keys: INT64 (or UINT64, bit for bit), [batch] or
// [batch, k]. If samples have different numbers of keys, it is [n], together with an input
// NAME.offsets, INT64 [batch + 1]: sample i has the keys from offsets[i] to offsets[i + 1]. Every
// other input has the network's name, type and shape, with the batch first.
struct ModelInput {
  std::string_view name;
  std::string_view datatype = "FP32";  // as the protocol names it: "INT64", "FP16", "BOOL", ...
  std::vector<int64_t> shape{};        // at most 8 dimensions
  std::span<const std::byte> bytes{};  // row-major, without gaps; need not be aligned

  static ModelInput Keys(std::string_view name, std::span<const Key> keys,
                         std::vector<int64_t> shape) {
    return {name, "INT64", std::move(shape), std::as_bytes(keys)};
  }
  static ModelInput Floats(std::string_view name, std::span<const float> values,
                           std::vector<int64_t> shape) {
    return {name, "FP32", std::move(shape), std::as_bytes(values)};
  }
};

// An output: FP32 for those of the network ([batch, ...]) and for rows of tables, UINT8 for
// statuses of keys, which are returned only if they are requested (NAME.status).
struct ModelOutput {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // row-major, without gaps

  // REQUIRES: datatype is "FP32".
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
};

struct PredictRequest {
  std::span<const ModelInput> inputs;
  // Names of the outputs to return. Empty = all outputs of the network (without a network: the rows
  // of the tables).
  std::span<const std::string_view> outputs{};
  // Longest wait for a free instance and for rows; the network's own time comes on top. Keys whose
  // rows have not come by then get default rows, or the call DEADLINE_EXCEEDED, as
  // [server] late_answers says. Zero = no wait, as for a lookup. Not set = [lookup] timeout.
  std::optional<std::chrono::nanoseconds> timeout{};
};

// Follows its model: each call answers from the version that is loaded then. A switch of the model
// (ModelManager::Load, Store::Import, ...) makes the new version ready before it returns: it
// compiles the network, which can take seconds, while calls are answered from the former version.
// If that fails, the switch returns why, and calls go on with the former version, whose tables take
// no changes any more. An unloaded or dropped model has none.
//
// Thread-safe. At most [server] lookups calls (0 = one per core) run at a time, each with buffers
// of its own; further calls wait. They share the network's weights and the store's caches. The
// network of one call may use all cores.
class PredictionModel {
 public:
  // Compiles the model's network, which can take seconds. Of the configuration it uses
  // lookup.timeout and, of `server`, lookups, late_answers, response_bytes_max, batch_keys_max,
  // dense_device and dense_math. If the store has devices, the instances take turns over them.
  // `store` must outlive the handle.
  // Errors: those of ModelManager::Open; UNIMPLEMENTED (the model has a network, and this build has
  // no engine, or does not find it), INVALID_ARGUMENT (the engine does not take the network),
  // RESOURCE_EXHAUSTED (no memory).
  static absl::StatusOr<std::unique_ptr<PredictionModel>> Open(Store& store,
                                                               const std::string& name,
                                                               const Config& config);

  virtual ~PredictionModel() = default;

  // One lookup of all keys (in pieces of batch_keys_max), then one run of the network.
  // Errors: NOT_FOUND (an input or output that the model does not have; names the nearest),
  // INVALID_ARGUMENT (missing or repeated tensors, datatypes, shapes, batches that differ, offsets
  // that go back, numbers that are NaN), OUT_OF_RANGE (too many keys, or too large an answer),
  // DEADLINE_EXCEEDED (no free instance within the timeout; late rows), UNAVAILABLE (the model was
  // unloaded), RESOURCE_EXHAUSTED (no memory), INTERNAL (the engine failed); those of
  // ModelManager::Open (the model is not loaded any more).
  virtual absl::StatusOr<std::vector<ModelOutput>> Predict(const PredictRequest& request) = 0;
};

}  // namespace hps
