// Makes the plan of a network: shapes, folded constants, fused steps and the places of buffers.
#pragma once

#include "absl/status/statusor.h"
#include "network/onnx/graph.h"
#include "network/plan/plan.h"

namespace hps {

// Needs the graph no longer afterwards. Costs a copy of the weights.
// Errors, which name the node and its operator: UNIMPLEMENTED (no device step does it; OpenVINO may
// run the network), INVALID_ARGUMENT (shapes that don't fit).
absl::StatusOr<DensePlan> MakeDensePlan(const OnnxGraph& graph);

// Gives every buffer its place: buffers that are never in use at the same time share memory.
void PlaceBuffers(DensePlan& plan);

}  // namespace hps
