// Reads the body of an infer request: JSON, or JSON followed by the bytes of binary tensors.
//
// Binary tensors stay where they are: the request's inputs are views of the body. Tensors in JSON
// are turned into bytes in one buffer, whose size is known, and bounded, before it is taken: a
// tensor never has more elements than its text has bytes. What the protocol has and this server
// has not (shared memory, classification) is UNIMPLEMENTED; what it may ignore (sequences,
// priorities, unknown parameters) is ignored.
//
// Not thread-safe. One decoder is used again for the next request, so that nothing is allocated
// after warm-up.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json_writer.h"
#include "server/core/inference_call.h"
#include "server/http/json_reader.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

inline constexpr size_t kInferTensorsMax = 512;

class InferDecoder {
 public:
  struct Body {
    std::span<char> json;               // strings are unescaped in place
    std::span<const std::byte> binary;  // what follows it
  };
  // How an output is to be sent.
  struct OutputChoice {
    std::string_view name;
    bool binary = false;
    bool chosen = false;  // by the output itself, not by the request
  };

  // Fills in id, timeout, inputs and output_names of `request`; all are views of `body` or of this
  // decoder, until the next Reset. `tensor_bytes_max` bounds the tensors that come as JSON.
  // Errors: INVALID_ARGUMENT (JSON, kinds, shapes, sizes), OUT_OF_RANGE (a limit), UNIMPLEMENTED,
  // RESOURCE_EXHAUSTED (no buffer now).
  absl::Status Decode(const Body& body, BufferPool& pool, size_t tensor_bytes_max,
                      InferenceRequest* request);

  // The same for a body without JSON, which is the INT64 keys of one table: [n], as many as there
  // are. Every output comes as bytes, as nothing could ask for it otherwise. Errors:
  // INVALID_ARGUMENT (no whole number of keys).
  absl::Status DecodeRaw(std::span<const std::byte> bytes, std::string table,
                         InferenceRequest* request);

  // Whether the client wants this output as bytes behind the JSON.
  bool wants_binary(std::string_view output) const;

  // Whether the request has the parameter `delete: true`, which a change of rows may have.
  bool is_delete() const { return is_delete_; }

  // How outputs in JSON write NaN and the infinities: the parameter `nonfinite`.
  NonFinite non_finite() const { return non_finite_; }

  // Whether the last error was one of syntax (and not of what the JSON says).
  bool failed_in_syntax() const { return failed_in_syntax_; }

  uint64_t lent_bytes() const { return tensors_.bytes().size(); }  // of the pool

  void Reset();  // keeps the capacity that usual requests need

 private:
  struct Input {
    InputTensor tensor;
    bool has_datatype = false;
    bool has_shape = false;
    bool has_binary_size = false;
    uint64_t binary_bytes = 0;
    std::span<char> data;  // the text of its elements; empty = none
    uint64_t element_count = 0;
  };

  absl::Status ReadRequest(JsonReader& json, InferenceRequest* request);
  void ReadInputs(JsonReader& json);
  void ReadInput(JsonReader& json);
  void ReadInputMember(JsonReader& json, std::string_view key, Input* input);
  void ReadShape(JsonReader& json, Input* input);
  void ReadOutputs(JsonReader& json);
  void ReadOutput(JsonReader& json);
  void ReadRequestParameters(JsonReader& json, InferenceRequest* request);
  absl::Status CheckInputs(size_t tensor_bytes_max, uint64_t* json_bytes);
  absl::Status CheckInput(Input& input);
  absl::Status PlaceBinary(std::span<const std::byte> binary);
  absl::Status ParseData(const char* body);

  std::vector<Input> inputs_;
  std::string raw_name_;  // of the input of a body without JSON
  std::vector<OutputChoice> outputs_;
  bool binary_by_default_ = false;
  bool is_delete_ = false;
  NonFinite non_finite_ = NonFinite::kNull;
  bool failed_in_syntax_ = false;
  BufferPool::Lease tensors_;
};

}  // namespace hps::server
