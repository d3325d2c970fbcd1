// Writes the JSON of an answer: what stands before the rows, or holds them.
//
// Thread-safe: no state.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/core/inference_call.h"
#include "server/http/json_infer_request.h"

namespace hps::server {

// Appends to `out`. An output that the client wants as bytes is announced with its size only (the
// caller sends the bytes of such outputs after the JSON, in order); the elements of others are
// written out. `binary_bytes` is the sum of the former.
// Errors: OUT_OF_RANGE when the JSON would exceed `bytes_max`; INVALID_ARGUMENT when an output's
// datatype has no JSON form.
absl::Status EncodeAnswer(const InferenceCall& call, const InferDecoder& choices,
                          uint64_t bytes_max, std::string* out, uint64_t* binary_bytes);

// No less than the bytes that EncodeAnswer appends for these outputs, or would append before it
// finds that they are too many.
uint64_t AnswerTextMax(const InferenceCall& call, const InferDecoder& choices, uint64_t bytes_max);

}  // namespace hps::server
