// Tensors as JSON: elements to and from text.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "base/json_writer.h"
#include "inference/tensor.h"

namespace hps::server {

// Whether elements of this type can be written as JSON numbers or booleans; not so FP16, BF16 and
// BYTES.
bool HasTextForm(Datatype datatype);

// Reads `text`, an array (nested as it likes: row-major order is all that counts), into exactly
// `elements`. Integers must fit the type; up to 2^53 they may be written as 7.0 or 7e0, and those
// of 64 bits as decimal strings. INT64 takes values up to 2^64 - 1, bit for bit. Floats may be NaN,
// Infinity and -Infinity, bare or as strings. Changes escaped text. `body` is where the JSON begins
// that `text` is a part of: positions in messages count from there.
// REQUIRES: HasTextForm.
// Errors: INVALID_ARGUMENT (not such numbers, or not as many); OUT_OF_RANGE (nested too deeply).
absl::Status ParseTensorText(std::span<char> text, const char* body, Datatype datatype,
                             std::span<std::byte> elements);

// Writes them as one flat array. REQUIRES: HasTextForm.
void WriteTensorText(std::span<const std::byte> elements, Datatype datatype, JsonWriter& json);

}  // namespace hps::server
