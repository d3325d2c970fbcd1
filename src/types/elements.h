// Converts row elements between types, and counts elements that are not finite.
//
// Conversion from float32 to float16 or bfloat16 rounds to nearest, ties to even. The reverse
// conversion is exact (types/row_convert.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps {

uint16_t FloatToHalf(float value);
uint16_t FloatToBfloat16(float value);

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

// True if the types are equal or one of them is float32.
constexpr bool CanConvert(Dtype from, Dtype to) {
  return from == to || from == Dtype::kFloat32 || to == Dtype::kFloat32;
}

// Converts all elements of `in`. REQUIRES: CanConvert(from, to); `out` has room for the elements
// and does not overlap `in`.
ElementCounts ConvertElements(Dtype from, std::span<const std::byte> in, Dtype to,
                              std::span<std::byte> out);

// Changed rows of float32 as those of a table of `to`. Error: INVALID_ARGUMENT (finite elements
// that would become infinite).
absl::StatusOr<std::vector<std::byte>> ConvertChangedRows(std::span<const std::byte> rows,
                                                          Dtype to);

}  // namespace hps
