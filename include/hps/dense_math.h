// How a GPU computes with the numbers of a dense network.
#pragma once

#include <cstdint>

namespace hps {

// The types of what matrix products multiply and of the values between the layers. Products are
// summed in float32, and inputs, outputs and weights outside of products stay float32, always.
//
// A finite value that a type of 16 bits does not have becomes the largest number of its sign, so
// masks like -3.4e38 stay finite. Results of cuBLASLt become infinite (docs/ctr_models.md).
enum class DenseMath : uint8_t {
  kFloat32,   // "float32"
  kTf32,      // "tf32": values are float32; products round them to mantissas of 10 bits
  kFloat16,   // "float16": mantissas of 10 bits, absolute values up to 65,504
  kBfloat16,  // "bfloat16": mantissas of 7 bits, absolute values up to 3.3895e38
};

}  // namespace hps
