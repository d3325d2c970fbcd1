// Elements of rows: conversion between the element types, and counting what is not finite.
//
// float32 -> float16 and bfloat16 round to the nearest, ties to even; the way back is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/types.h"

namespace hps {

uint16_t FloatToHalf(float value);
float HalfToFloat(uint16_t half);
uint16_t FloatToBfloat16(float value);
float Bfloat16ToFloat(uint16_t bfloat);

struct ElementCounts {
  uint64_t non_finite = 0;  // NaN or infinite in the input
  uint64_t overflowed = 0;  // finite in the input, infinite in the output

  ElementCounts& operator+=(const ElementCounts& other) {
    non_finite += other.non_finite;
    overflowed += other.overflowed;
    return *this;
  }
};

ElementCounts CountElements(Dtype dtype, std::span<const std::byte> elements);

// Whether elements of type `from` can become elements of type `to`: the same type, or float32 on
// one side.
constexpr bool CanConvert(Dtype from, Dtype to) {
  return from == to || from == Dtype::kFloat32 || to == Dtype::kFloat32;
}

// Converts as many elements as `in` holds. REQUIRES: CanConvert(from, to); `out` has room for them;
// the two don't overlap.
ElementCounts ConvertElements(Dtype from, std::span<const std::byte> in, Dtype to,
                              std::span<std::byte> out);

}  // namespace hps
