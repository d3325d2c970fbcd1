// The bytes of an ONNX tensor, wherever the file keeps them: raw, as typed numbers, or in a file of
// the model's folder.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace onnx {
class TensorProto;
}  // namespace onnx

namespace hps {

// Checks type, shape and size, and puts the tensor's bytes into its `raw_data`, whatever held them.
// `folder` is where external data may lie (empty: nowhere); `bytes_left` is what external data may
// still take, and is reduced. Errors: INVALID_ARGUMENT, OUT_OF_RANGE, NOT_FOUND, DATA_LOSS.
absl::Status NormalizeTensor(const std::string& folder, ::onnx::TensorProto& tensor,
                             uint64_t& bytes_left);

}  // namespace hps
