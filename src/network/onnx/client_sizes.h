// Sizes that a client could choose by the numbers that it sends.
#pragma once

#include "absl/status/status.h"
#include "network/onnx/graph.h"

namespace hps {

// Some operators make a tensor whose size is the value of an input: Expand, Tile, Pad, OneHot and
// ConstantOfShape. Computed from the numbers of an input of the graph, one request could ask for
// any amount of memory. From constants, or from the shapes of inputs, it can't.
// Errors: INVALID_ARGUMENT, which names the node, its operator and the input of the graph.
absl::Status CheckSizesOfClients(const OnnxGraph& graph);

}  // namespace hps
