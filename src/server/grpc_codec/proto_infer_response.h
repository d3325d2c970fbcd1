// Lays out a serialized ModelInferResponse (or the ModelStreamInferResponse around one) so that
// rows are written straight to where they are sent from.
//
// The message is a few pieces of one buffer: a head (names, shapes), and each output's data,
// aligned to 64 bytes, with the next output's tag and length right behind it. Sent one after the
// other, the pieces are the message; what lies between them are gaps for the alignment.
//
// Not thread-safe; used again for the next answer, so that nothing is allocated after warm-up.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/inference_call.h"

namespace hps::server {

class InferResponseCodec {
 public:
  struct Options {
    bool in_stream = false;   // wrapped as a ModelStreamInferResponse
    bool final_mark = false;  // with the parameter triton_final_response
  };

  // Plans the answer to a prepared call. Returns how many bytes its buffer needs.
  size_t Plan(const InferenceCall& call, const Options& options);

  // Writes all but the data into `buffer` (of as many bytes, aligned to 64), and points each
  // output's `data` into it. The pieces are complete when the data are.
  void Place(std::byte* buffer, InferenceCall* call);

  // In the order in which they are sent.
  std::span<const std::span<std::byte>> pieces() const { return pieces_; }

 private:
  void AppendMessageHead(const InferenceCall& call, const Options& options);

  std::string head_;                     // up to the first output's data
  std::string part_;                     // a message within it, while its length is not known
  std::vector<std::string> separators_;  // before each output's data but the first
  std::vector<std::span<std::byte>> pieces_;
};

// A serialized ModelStreamInferResponse that says why one request of a stream failed.
std::string StreamErrorMessage(std::string_view message, std::string_view model,
                               std::string_view id);

}  // namespace hps::server
