// Elements of rows, outputs and gradients in memory, as float32 or in 16 bits, one or four at a
// time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "hps/types.h"
#include "train/row_rounding.h"
#include "train_gpu/kernels/floats.cuh"

namespace hps {

// Elements as they are in memory; those of 16 bits use half of it. Loading and converting are two
// steps, so that many loads can be under way.
template <typename Vector>
struct RawElements;
template <>
struct RawElements<float> {
  uint32_t bits;
};
template <>
struct RawElements<float4> {
  uint4 bits;
};

// `column`: the first element. A row that is null has zeros.
template <typename Vector>
__device__ inline RawElements<Vector> LoadRaw(const std::byte* row, uint32_t column, Dtype dtype);
template <>
__device__ inline RawElements<float> LoadRaw<float>(const std::byte* row, uint32_t column,
                                                    Dtype dtype) {
  if (row == nullptr) return {0};
  if (dtype == Dtype::kFloat32) return {*reinterpret_cast<const uint32_t*>(row + 4 * column)};
  return {*reinterpret_cast<const uint16_t*>(row + 2 * column)};
}
template <>
__device__ inline RawElements<float4> LoadRaw<float4>(const std::byte* row, uint32_t column,
                                                      Dtype dtype) {
  if (row == nullptr) return {make_uint4(0, 0, 0, 0)};
  if (dtype == Dtype::kFloat32) return {*reinterpret_cast<const uint4*>(row + 4 * column)};
  const auto halves = *reinterpret_cast<const uint2*>(row + 2 * column);
  return {make_uint4(halves.x, halves.y, 0, 0)};
}

__device__ inline float FromShort(uint32_t bits, Dtype dtype) {
  if (dtype == Dtype::kBfloat16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

__device__ inline float Converted(const RawElements<float>& raw, Dtype dtype) {
  return dtype == Dtype::kFloat32 ? __uint_as_float(raw.bits) : FromShort(raw.bits, dtype);
}
__device__ inline float4 Converted(const RawElements<float4>& raw, Dtype dtype) {
  const uint4& bits = raw.bits;
  if (dtype == Dtype::kFloat32) {
    return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                       __uint_as_float(bits.w));
  }
  return make_float4(FromShort(bits.x & 0xffff, dtype), FromShort(bits.x >> 16, dtype),
                     FromShort(bits.y & 0xffff, dtype), FromShort(bits.y >> 16, dtype));
}

template <typename Vector>
__device__ inline Vector Load(const std::byte* row, uint32_t column, Dtype dtype) {
  return Converted(LoadRaw<Vector>(row, column, dtype), dtype);
}

// The nearest value; larger ones become infinite, as PyTorch converts.
__device__ inline uint32_t ToShort(float value, Dtype dtype) {
  if (dtype == Dtype::kBfloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}

__device__ inline void Store(std::byte* row, uint32_t column, float value, Dtype dtype) {
  if (dtype == Dtype::kFloat32)
    *reinterpret_cast<float*>(row + 4 * column) = value;
  else
    *reinterpret_cast<uint16_t*>(row + 2 * column) = static_cast<uint16_t>(ToShort(value, dtype));
}
__device__ inline void Store(std::byte* row, uint32_t column, float4 value, Dtype dtype) {
  if (dtype == Dtype::kFloat32) {
    *reinterpret_cast<float4*>(row + 4 * column) = value;
    return;
  }
  *reinterpret_cast<uint2*>(row + 2 * column) =
      make_uint2(ToShort(value.x, dtype) | ToShort(value.y, dtype) << 16,
                 ToShort(value.z, dtype) | ToShort(value.w, dtype) << 16);
}

// An element of a row, see RoundedToNearest.
__device__ inline void StoreNearest(std::byte* row, uint32_t column, float value, Dtype dtype) {
  if (dtype != Dtype::kFloat32) value = RoundedToNearest(value, dtype);
  Store(row, column, value, dtype);
}

// Elements of a row after an update, rounded at random to a type of 16 bits; see RoundingBits.
__device__ inline float RoundedElements(float value, Dtype dtype, uint32_t column,
                                        uint64_t random_of_quad) {
  return RoundedAtRandom(value, dtype,
                         static_cast<uint32_t>(random_of_quad >> (16 * (column % 4))) & 0xffff);
}
__device__ inline float4 RoundedElements(float4 value, Dtype dtype, uint32_t /*column*/,
                                         uint64_t random_of_quad) {
  const auto low = static_cast<uint32_t>(random_of_quad);
  const auto high = static_cast<uint32_t>(random_of_quad >> 32);
  return make_float4(
      RoundedAtRandom(value.x, dtype, low & 0xffff), RoundedAtRandom(value.y, dtype, low >> 16),
      RoundedAtRandom(value.z, dtype, high & 0xffff), RoundedAtRandom(value.w, dtype, high >> 16));
}

}  // namespace hps
