// Loads and stores of elements of any type that a network has, as float32.
//
// All threads of a step have the same type, so the branches cost no divergence.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "network/gpu/kernels/short_floats.h"
#include "network/onnx/graph.h"

namespace hps {

__device__ inline float LoadElement(const std::byte* data, OnnxElement element, int64_t at) {
  switch (element) {
    case OnnxElement::kUint8:
    case OnnxElement::kBool:
      return static_cast<float>(reinterpret_cast<const uint8_t*>(data)[at]);
    case OnnxElement::kInt8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(data)[at]);
    case OnnxElement::kInt32:
      return static_cast<float>(reinterpret_cast<const int32_t*>(data)[at]);
    case OnnxElement::kInt64:
      return static_cast<float>(reinterpret_cast<const int64_t*>(data)[at]);
    case OnnxElement::kFloat64:
      return static_cast<float>(reinterpret_cast<const double*>(data)[at]);
    case OnnxElement::kFloat16:
      return __half2float(reinterpret_cast<const __half*>(data)[at]);
    case OnnxElement::kBfloat16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[at]);
    default:
      return reinterpret_cast<const float*>(data)[at];
  }
}

// Of float32, float16 or bfloat16.
__device__ inline float LoadFloat(const std::byte* data, OnnxElement element, int64_t at) {
  if (element == OnnxElement::kFloat32) return reinterpret_cast<const float*>(data)[at];
  if (element == OnnxElement::kFloat16)
    return __half2float(reinterpret_cast<const __half*>(data)[at]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[at]);
}

__device__ inline void StoreFloat(std::byte* data, OnnxElement element, int64_t at, float value) {
  if (element == OnnxElement::kFloat32) {
    reinterpret_cast<float*>(data)[at] = value;
  } else if (element == OnnxElement::kFloat16) {
    reinterpret_cast<__half*>(data)[at] = ToFloat16(value);
  } else {
    reinterpret_cast<__nv_bfloat16*>(data)[at] = ToBfloat16(value);
  }
}

// Two elements of 16 bits in one word.
__device__ inline float2 Unpack(uint32_t word, OnnxElement element) {
  if (element == OnnxElement::kFloat16) return __half22float2(*reinterpret_cast<__half2*>(&word));
  return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&word));
}

__device__ inline uint32_t Pack(float low, float high, OnnxElement element) {
  if (element == OnnxElement::kFloat16) {
    const __half2 both =
        __floats2half2_rn(Saturated(low, kFloat16Max), Saturated(high, kFloat16Max));
    return *reinterpret_cast<const uint32_t*>(&both);
  }
  const __nv_bfloat162 both =
      __floats2bfloat162_rn(Saturated(low, kBfloat16Max), Saturated(high, kBfloat16Max));
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Four elements of float32, float16 or bfloat16. REQUIRES: `at` is a multiple of four, and the
// memory is aligned to 16 bytes.
__device__ inline float4 LoadFloats(const std::byte* data, OnnxElement element, int64_t at) {
  if (element == OnnxElement::kFloat32)
    return *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(data) + at);
  const uint2 words = *reinterpret_cast<const uint2*>(reinterpret_cast<const uint16_t*>(data) + at);
  const float2 low = Unpack(words.x, element);
  const float2 high = Unpack(words.y, element);
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ inline void StoreFloats(std::byte* data, OnnxElement element, int64_t at,
                                   const float4& values) {
  if (element == OnnxElement::kFloat32) {
    *reinterpret_cast<float4*>(reinterpret_cast<float*>(data) + at) = values;
    return;
  }
  *reinterpret_cast<uint2*>(reinterpret_cast<uint16_t*>(data) + at) =
      make_uint2(Pack(values.x, values.y, element), Pack(values.z, values.w, element));
}

}  // namespace hps
