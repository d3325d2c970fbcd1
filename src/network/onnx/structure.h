// The bytes of an ONNX file that are structure: all but the weights.
//
// protobuf makes about a hundred bytes of objects from a node of two bytes. A limit of the file's
// size alone would let a hostile file take a hundred times that size; a limit of its structure does
// not, and needs no small limit of the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace hps {

// The size of the file less the `raw_data` of its initializers. Reads without allocating.
// REQUIRES: fewer than INT_MAX bytes.
// Errors: INVALID_ARGUMENT (the bytes are not a protobuf message).
absl::StatusOr<uint64_t> OnnxStructureBytes(std::span<const std::byte> file);

}  // namespace hps
