// From a client's tensors to the tables that are looked up: everything that can be wrong with a
// request's content is found here, before anything is allocated or read for it.
//
// Two conventions (docs/server.md): by table, one input and one output per table; and KEYS, NUMKEYS
// -> OUTPUT0, as HugeCTR's Triton backend. Inputs of either one may ask for outputs of either one,
// also of both. A model with a table named KEYS, NUMKEYS or OUTPUT0 is asked by table only. A
// request for the outputs of a model's dense network is prediction_plan.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "server/core/call_state.h"
#include "server/core/inference_call.h"
#include "server/core/model_version.h"
#include "server/core/tensor_checks.h"

namespace hps::server {

inline constexpr std::string_view kKeysInput = "KEYS";
inline constexpr std::string_view kKeyCountsInput = "NUMKEYS";
inline constexpr std::string_view kRowsOutput = "OUTPUT0";
inline constexpr std::string_view kStatusOutput = "OUTPUT0.status";
inline constexpr std::string_view kStatusSuffix = ".status";

// Whether the model can be asked by KEYS and NUMKEYS.
bool HasKeysConvention(const ModelVersion& version);

// Fills in the call's outputs (all but `data`), and the parts and key count of `plan`.
// Errors: NOT_FOUND (an input or output that the model does not have; names the nearest),
// INVALID_ARGUMENT (missing or repeated tensors, datatypes, shapes, sizes, NUMKEYS that do not add
// up), OUT_OF_RANGE (too many keys, or too large an answer).
absl::Status PlanRequest(const ModelVersion& version, const PlanLimits& limits, InferenceCall& call,
                         CallState& plan);

}  // namespace hps::server
