// float32 to 16 bits, on the host and in kernels: rounded to the nearest, and what is finite stays
// finite. The masks of attention are numbers like -3.4e38; as infinities they would make the
// softmax of a row that is masked altogether NaN. NaN and infinities stay what they are.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

namespace hps {

inline constexpr float kFloat16Max = 65504.0F;
inline constexpr float kBfloat16Max = 0x1.FEp127F;  // 3.3895314e38

// A finite value that is larger than `max` or smaller than -`max` becomes that.
constexpr float Saturated(float value, float max) {
  constexpr float kFiniteMax = std::numeric_limits<float>::max();
  if (value > max && value <= kFiniteMax) return max;
  if (value < -max && value >= -kFiniteMax) return -max;
  return value;
}

__host__ __device__ inline __half ToFloat16(float value) {
  return __float2half_rn(Saturated(value, kFloat16Max));
}

__host__ __device__ inline __nv_bfloat16 ToBfloat16(float value) {
  return __float2bfloat16_rn(Saturated(value, kBfloat16Max));
}

}  // namespace hps
