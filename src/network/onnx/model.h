// The one reader of ONNX files.
//
// A file is a stranger's: every size is checked in 64 bits before memory is taken, the structure
// (all but the weights) is limited before protobuf reads it, external data must lie inside the
// model's folder after links are resolved, operators are those of a list, no size is computed from
// a client's numbers (client_sizes.h), and sub-graphs, functions and sparse tensors are refused.
// What came through is normal: all weights are inside the model, as raw bytes, and each value is
// defined once, before its use.
//
// Immutable after it is made, but for the splitter; thread-safe when const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "network/onnx/graph.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace hps {

struct OnnxLimits {
  uint64_t bytes_max = uint64_t{1} << 30;            // of the file and its external data together
  uint64_t structure_bytes_max = uint64_t{8} << 20;  // of all but the weights
};

class OnnxModel {
 public:
  // The opsets that are read, of ONNX's own domain.
  static constexpr int64_t kOpsetMin = 9;
  static constexpr int64_t kOpsetMax = 23;

  // Errors, which begin with the path: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a model
  // that is taken, with the reason), OUT_OF_RANGE (over a limit), DATA_LOSS (a file that ends early
  // or can't be read).
  static absl::StatusOr<OnnxModel> Read(const std::string& path, const OnnxLimits& limits);

  // Of a file's bytes; external data is an error. Errors: INVALID_ARGUMENT, OUT_OF_RANGE.
  static absl::StatusOr<OnnxModel> Parse(std::span<const std::byte> bytes,
                                         const OnnxLimits& limits);

  OnnxModel(OnnxModel&&) noexcept;
  OnnxModel& operator=(OnnxModel&&) noexcept;
  ~OnnxModel();

  const OnnxGraph& graph() const { return graph_; }

  // The model as one file without external data. Errors: OUT_OF_RANGE (over 2 GiB).
  absl::StatusOr<std::string> Serialize() const;

  const ::onnx::ModelProto& proto() const { return *proto_; }

 private:
  explicit OnnxModel(std::unique_ptr<::onnx::ModelProto> proto);

  static absl::StatusOr<OnnxModel> Make(std::span<const std::byte> bytes, const OnnxLimits& limits,
                                        const std::string& folder);

  std::unique_ptr<::onnx::ModelProto> proto_;
  OnnxGraph graph_;
};

}  // namespace hps
