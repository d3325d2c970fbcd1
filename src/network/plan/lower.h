// How the operators of ONNX become values and steps of a plan; each function takes one node.
//
// Errors: UNIMPLEMENTED (a case that the device does not run, with the reason), INVALID_ARGUMENT.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "network/onnx/graph.h"
#include "network/plan/plan_state.h"

namespace hps {

// Operators whose output is computed element by element.
bool IsElementwiseOperator(std::string_view op);
absl::Status LowerElementwise(PlanState& state, const OnnxNode& node);
absl::Status LowerCast(PlanState& state, const OnnxNode& node);
absl::Status LowerBatchNormalization(PlanState& state, const OnnxNode& node);

absl::Status LowerGemm(PlanState& state, const OnnxNode& node);
absl::Status LowerMatMul(PlanState& state, const OnnxNode& node);
// Takes the node into the GEMM that makes its input, if it is a bias or ReLU and fits.
absl::StatusOr<bool> TakeIntoGemm(PlanState& state, const OnnxNode& node);

absl::Status LowerLayout(PlanState& state, const OnnxNode& node);
absl::Status LowerConcat(PlanState& state, const OnnxNode& node);
absl::Status LowerSplit(PlanState& state, const OnnxNode& node);

std::optional<PlanReduction> ReductionOf(std::string_view op);
absl::Status LowerReduce(PlanState& state, const OnnxNode& node);
absl::Status LowerSoftmax(PlanState& state, const OnnxNode& node);
absl::Status LowerLayerNormalization(PlanState& state, const OnnxNode& node);

// Computes the node now: all of its inputs are constants, or only their shapes matter.
absl::Status FoldNode(PlanState& state, const OnnxNode& node);

// Dims that all fit by broadcasting. Errors: UNIMPLEMENTED (the batch would be repeated),
// INVALID_ARGUMENT.
absl::StatusOr<PlanView> BroadcastShape(const std::vector<const PlanValue*>& values);

}  // namespace hps
