// From a client's tensors to a prediction: the keys of the network's tables, its other inputs, and
// its outputs. Everything that can be wrong with such a request is found here.
//
// Two conventions (docs/ctr_models.md). By name: for each table that the network reads an input of
// its name, INT64 [batch] or [batch, k], or ragged as NAME [n] with NAME.offsets [batch + 1]; and
// the network's other inputs by their names. As HugeCTR's Triton backend: DES, CATCOLUMN and
// ROWINDEX -> OUTPUT0. The network's outputs by name and the rows of the tables may be asked for in
// either one. OUTPUT0 has the rows of all tables of the request if the inputs come by name, and the
// network's first output if they come as DES, CATCOLUMN and ROWINDEX.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
#include "inference/tensor.h"
#include "inference/tensor_checks.h"

namespace hps {

inline constexpr std::string_view kDenseInput = "DES";
inline constexpr std::string_view kColumnsInput = "CATCOLUMN";
inline constexpr std::string_view kRowIndexInput = "ROWINDEX";
inline constexpr std::string_view kOffsetsSuffix = ".offsets";

// Whether the model can be asked by DES, CATCOLUMN and ROWINDEX: its network takes at most one
// input from the client, FP32 of a known width; each table's number of slots is known; and its
// first output is one number for each sample.
bool HasDesConvention(const ModelVersion& version);

// Whether the request is for outputs of the model's network.
bool AsksForPrediction(const ModelVersion& version, const TensorRequest& request);

// As PlanRequest (request_plan.h), with the plan's prediction.
// REQUIRES: AsksForPrediction. Errors: NOT_FOUND (an input or output that the model does not have;
// names the nearest), INVALID_ARGUMENT (missing or repeated tensors, datatypes, shapes, batches
// that differ, offsets that go back, numbers that are NaN), OUT_OF_RANGE (too many keys, or too
// large an answer).
absl::Status PlanPrediction(const ModelVersion& version, const PlanLimits& limits,
                            const TensorRequest& request, std::vector<OutputTensor>& outputs,
                            ExecutionPlan& plan);

}  // namespace hps
