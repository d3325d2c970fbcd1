// Reads a serialized ModelInferRequest into an InferenceRequest, without protobuf and without gRPC.
//
// Every view in the result points into the message itself, but for tensors in typed contents
// (InferTensorContents), which are unpacked into `unpacked`. What a message may hold is bounded
// before anything is allocated for it (base/limits.h).
//
// Not thread-safe; used again for the next request, so that nothing is allocated after warm-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/core/inference_call.h"

namespace hps::server {

class InferRequestCodec {
 public:
  // Fills in model, version, id, timeout, inputs and output_names of `request`; the message must
  // live as long as they are used, and so must this object, without another Parse. Typed contents
  // may unpack to `unpacked_bytes_max`, and to no more than the keys of the largest call.
  //
  // Errors: INVALID_ARGUMENT (not a ModelInferRequest; a negative time-out; a datatype that does
  // not exist; dimensions that are negative; contents that do not match), OUT_OF_RANGE (over a
  // limit), UNIMPLEMENTED (shared memory, classification).
  absl::Status Parse(std::span<const std::byte> message, uint64_t unpacked_bytes_max,
                     InferenceRequest* request);

  // Fills in model, id and timeout alone, as far as they are there and right, and looks at no more
  // than the first fields, those within parameters included: for a message that must wait, or is
  // refused before it is read. It may be cut off.
  void ParseHead(std::span<const std::byte> message, InferenceRequest* request);

  // Whether the last message asked its stream for a mark on the last answer.
  bool wants_final_mark() const { return wants_final_mark_; }

  // Of its own memory, that typed contents take.
  size_t unpacked_bytes() const { return unpacked_bytes_.capacity(); }

  // Gives back memory that an unusually large message has taken.
  void Trim();

 private:
  // What an input's typed contents have become; `end` is exclusive.
  struct Unpacked {
    size_t input = 0;
    size_t begin = 0;
    size_t end = 0;
  };

  absl::Status ParseFields(std::span<const std::byte> message, InferenceRequest* request);
  absl::Status ParseInput(std::span<const std::byte> bytes, InferenceRequest* request);
  absl::Status ParseOutput(std::span<const std::byte> bytes, InferenceRequest* request);
  absl::Status ParseParameter(std::span<const std::byte> bytes, InferenceRequest* request);
  // Each appends to unpacked_bytes_.
  absl::Status UnpackContents(std::span<const std::byte> contents, const InputTensor& input);
  absl::Status AppendPacked(std::span<const std::byte> packed, const InputTensor& input);
  absl::Status AppendNumber(uint64_t number, const InputTensor& input);
  absl::Status CheckUnpacked(size_t more_bytes, const InputTensor& input) const;
  absl::Status ConnectBytes(InferenceRequest* request);

  std::vector<std::span<const std::byte>> raw_;
  std::vector<Unpacked> unpacked_;
  std::vector<std::byte> unpacked_bytes_;
  uint64_t unpacked_bytes_max_ = 0;
  bool wants_final_mark_ = false;
};

}  // namespace hps::server
