// What the library of TensorFlow's operator calls of the extension. It is a library of its own
// because TensorFlow loads operators from a file; hps.tensorflow connects the two in the process,
// so that neither is linked with the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hps::python {

// Keys and rows of `table_count` tables in host memory; see OperatorTarget in operator_lookup.h.
struct OperatorCall {
  const char* source;
  const char* tables;
  size_t table_count;
  const void* const* keys;  // int64, or int32 if `keys_are_narrow`
  const size_t* key_counts;
  bool keys_are_narrow;
  float* const* rows;
};

// Returns the code of an absl::Status. `message`, of `message_bytes` bytes, gets the text of an
// error, cut if it is longer, with a final 0.
using OperatorFunction = int(const OperatorCall& call, char* message, size_t message_bytes);

// No table has more elements in a row. TensorFlow aborts when sizes of a tensor overflow.
inline constexpr int64_t kOperatorDimMax = 16 << 10;

// The name of the library's function that takes the extension's: void(OperatorFunction*).
inline constexpr const char* kConnectFunction = "hps_tensorflow_connect";

}  // namespace hps::python
