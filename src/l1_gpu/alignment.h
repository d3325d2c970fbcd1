// Alignments of memory that the device reads.
#pragma once

#include <cstddef>

namespace hps {

// Of the parts of one block: as much as a block of cudaMalloc has.
inline constexpr size_t kDeviceAlignment = 256;

// Of a query's rows in a buffer: the kernels move 16 bytes at once.
inline constexpr size_t kRowAlignment = 16;

}  // namespace hps
