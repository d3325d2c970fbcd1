// A network that the reader has taken, compiled by OpenVINO.
//
// Apart from MakeDenseNetwork, so that the extension of Python can have OpenVINO in a library of
// its own, which is loaded when a network is compiled.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "network/dense_network.h"
#include "network/onnx/graph.h"

namespace hps {

// `onnx`: the file that `graph` is of. Errors: INVALID_ARGUMENT (OpenVINO does not take it, with
// its reason), RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeOpenvinoNetwork(const OnnxGraph& graph,
                                                                  const std::string& onnx,
                                                                  const DenseOptions& options);

}  // namespace hps
