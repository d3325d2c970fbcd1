// Divides a trained ONNX model into the directory of a model: a folder for each embedding table,
// the dense network and model.toml, as `hps import --model` takes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "network/onnx/split.h"

namespace hps {

struct SplitReport {
  std::vector<OnnxSplitTable> tables;      // without their rows
  std::vector<std::string> client_inputs;  // of the network, which clients send
  uint64_t network_bytes = 0;
  std::vector<std::string> remarks;  // where keys come from; what was not divided, and why
};

// A row's number becomes its key. Tables of float32 and bfloat16 become HugeCTR's files (float32),
// those of float16 NumPy's. `directory` is created; it must not hold a model. Reads the whole model
// into memory. Errors: those of OnnxModel::Read and SplitOnnx; INVALID_ARGUMENT (a table is too
// wide; the network has a fixed batch), ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED.
// What was written before an error of the disk stays.
absl::StatusOr<SplitReport> SplitOnnxFile(const std::string& path, const std::string& directory);

// Writes a new file durably. Errors: ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED.
absl::Status WriteNewFile(const std::string& path, std::string_view content);

}  // namespace hps
