// Cuts the plan of a large prediction into parts of its samples, which are looked up and predicted
// one after the other.
#pragma once

#include "inference/execution_plan.h"
#include "network/device_rows.h"
#include "network/onnx/network_signature.h"

namespace hps {

// Makes `part` the plan for these samples of `plan`: the same tables and inputs, without outputs.
// It points into the request of `plan`. REQUIRES: `plan` is a prediction, and only the network
// reads its rows.
void CutPlan(const NetworkSignature& signature, const ExecutionPlan& plan,
             const SampleRange& samples, ExecutionPlan& part);

}  // namespace hps
