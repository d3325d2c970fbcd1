// From a client's tensors to the tables that are looked up: everything that can be wrong with a
// request's content is found here, before anything is allocated or read for it.
//
// Two conventions (docs/server.md): by table, one input and one output per table; and KEYS, NUMKEYS
// -> OUTPUT0, as HugeCTR's Triton backend. Inputs of either one may ask for outputs of either one,
// also of both. A model with a table named KEYS, NUMKEYS or OUTPUT0 is asked by table only. A
// request for the outputs of a model's dense network is prediction_plan.h's.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
#include "inference/tensor.h"
#include "inference/tensor_checks.h"

namespace hps {

inline constexpr std::string_view kKeysInput = "KEYS";
inline constexpr std::string_view kKeyCountsInput = "NUMKEYS";
inline constexpr std::string_view kRowsOutput = "OUTPUT0";
inline constexpr std::string_view kStatusOutput = "OUTPUT0.status";
inline constexpr std::string_view kStatusSuffix = ".status";

// Whether the model can be asked by KEYS and NUMKEYS.
bool HasKeysConvention(const ModelVersion& version);

// NOT_FOUND: the model has no such `kind`, "input" or "output". Names the nearest one.
absl::Status NoSuchTensor(const char* kind, std::string_view name, const ModelVersion& version);

// Fills in `outputs` (all but `data`) and `plan`; `outputs` must live as long as the plan, and keep
// its size.
// Errors: NOT_FOUND (an input or output that the model does not have; names the nearest),
// INVALID_ARGUMENT (missing or repeated tensors, datatypes, shapes, sizes, NUMKEYS that do not add
// up), OUT_OF_RANGE (too many keys, or too large an answer).
absl::Status PlanRequest(const ModelVersion& version, const PlanLimits& limits,
                         const TensorRequest& request, std::vector<OutputTensor>& outputs,
                         ExecutionPlan& plan);

}  // namespace hps
