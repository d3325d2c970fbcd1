// Checks of a request's tensors that every convention makes: sizes in 64 bits, element types, key
// counts, the size of the answer. Errors quote the tensor's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "inference/tensor.h"
#include "network/onnx/graph.h"

namespace hps {

struct PlanLimits {
  uint64_t response_bytes_max = 0;
};

absl::string_view Text(std::string_view text);

// "[2, 3]"
std::string ShapeText(const Shape& shape);

// INVALID_ARGUMENT: "input 'NAME': WHAT".
absl::Status Invalid(const InputTensor& input, const std::string& what);

// INVALID_ARGUMENT: the output is asked for twice.
absl::Status AskedTwice(std::string_view output);

// The elements of an input of `element_bytes` each. Errors: INVALID_ARGUMENT (the shape does not
// fit the bytes).
absl::StatusOr<uint64_t> CheckedElements(const InputTensor& input, size_t element_bytes);

// The number of keys of an input, of 64 or 32 bits. Errors: INVALID_ARGUMENT (also another element
// type).
absl::StatusOr<uint64_t> CheckedKeys(const InputTensor& input);

// Errors: OUT_OF_RANGE (more than kKeysPerCallMax).
absl::Status CheckKeyTotal(uint64_t key_count);
absl::Status CheckSampleTotal(uint64_t sample_count);

// The bytes of an output. Errors: OUT_OF_RANGE (over the limit).
absl::StatusOr<size_t> OutputBytes(std::string_view name, uint64_t count, uint64_t element_bytes,
                                   const PlanLimits& limits);

// All outputs together. Errors: OUT_OF_RANGE.
absl::Status CheckResponse(std::span<const OutputTensor> outputs, const PlanLimits& limits);

// Errors: INVALID_ARGUMENT unless the shape is [n] or [1, n].
absl::Status CheckFlat(const InputTensor& input);

// Whether one of the elements is NaN; false for types that have none.
bool HasNan(Datatype datatype, std::span<const std::byte> elements);

// Whether each 64-bit integer fits 32 bits.
bool FitsInt32(std::span<const std::byte> bytes);

// The protocol's type of an element of a network.
Datatype DatatypeOf(OnnxElement element);

// Adds an output, all but its memory.
void AddOutputTensor(std::vector<OutputTensor>& outputs, std::string_view name, Datatype datatype,
                     const Shape& shape, size_t byte_count);

}  // namespace hps
