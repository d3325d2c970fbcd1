// Arithmetic of one or four float32 values, without multiplication and addition in one instruction
// (the folder is compiled with -fmad=false), so that the host gets the same bits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace hps {

template <typename Vector>
__device__ inline Vector Zero();
template <>
__device__ inline float Zero<float>() {
  return 0.0f;
}
template <>
__device__ inline float4 Zero<float4>() {
  return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

template <typename Do>
__device__ inline float Each(float a, float b, const Do& apply) {
  return apply(a, b);
}
template <typename Do>
__device__ inline float4 Each(float4 a, float4 b, const Do& apply) {
  return make_float4(apply(a.x, b.x), apply(a.y, b.y), apply(a.z, b.z), apply(a.w, b.w));
}
__device__ inline float All(float value, float) { return value; }
__device__ inline float4 All(float value, float4) {
  return make_float4(value, value, value, value);
}

template <typename Vector>
__device__ inline Vector Plus(Vector a, Vector b) {
  return Each(a, b, [](float x, float y) { return x + y; });
}
template <typename Vector>
__device__ inline Vector Times(Vector a, float b) {
  return Each(a, All(b, a), [](float x, float y) { return x * y; });
}
template <typename Vector>
__device__ inline Vector Over(Vector a, float b) {
  return Each(a, All(b, a), [](float x, float y) { return x / y; });
}

__device__ inline float SumOfSquares(float value) { return value * value; }
__device__ inline float SumOfSquares(float4 value) {
  return value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w;
}

// Whether all magnitudes are at most `limit`; NaN is not.
__device__ inline bool IsWithin(float value, float limit) { return fabsf(value) <= limit; }
__device__ inline bool IsWithin(float4 value, float limit) {
  return IsWithin(value.x, limit) && IsWithin(value.y, limit) && IsWithin(value.z, limit) &&
         IsWithin(value.w, limit);
}

// Calls launch.operator()<Vector, kLanes>() with the smallest tile of lanes that holds a row of
// `dim` floats, or with a warp. `is_aligned`: rows are whole vectors of four floats.
template <typename Launch>
auto WithTiles(uint32_t dim, bool is_aligned, const Launch& launch) {
  if (is_aligned) {
    if (dim <= 16) return launch.template operator()<float4, 4>();
    if (dim <= 32) return launch.template operator()<float4, 8>();
    if (dim <= 64) return launch.template operator()<float4, 16>();
    return launch.template operator()<float4, 32>();
  }
  if (dim <= 8) return launch.template operator()<float, 8>();
  if (dim <= 16) return launch.template operator()<float, 16>();
  return launch.template operator()<float, 32>();
}

}  // namespace hps
