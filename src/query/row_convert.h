// Rows of 16-bit floating point numbers as float32: the last copy of a session that was asked for
// float32 output.
//
// Every 16-bit value is exact in float32: subnormals become normal numbers, infinities and zeros
// keep their sign, NaNs keep sign, payload and whether they are quiet.
#pragma once

#include <cstddef>

#include "hps/types.h"

namespace hps {

// Converts `element_count` elements of `dtype` at `from` to float32 at `to`; float32 is copied.
// Neither need be aligned; they must not overlap.
void ConvertToFloat32(Dtype dtype, const std::byte* from, size_t element_count, std::byte* to);

}  // namespace hps
