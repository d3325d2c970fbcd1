// One query of a launch, as the kernels see it. For kernels and their launches.
#pragma once

#include <cstdint>

#include "l1_gpu/kernels.h"

namespace hps {

// The kinds of copies that kernels are made for.
enum class CopyKind : uint32_t {
  kBytes,    // units of one byte
  kWords,    // units of 4 bytes
  kUnits,    // units of 16 bytes, any number
  kUnits4,   // 64 bytes
  kUnits8,   // 128 bytes
  kUnits16,  // 256 bytes
  kUnits32,  // 512 bytes
};

// `alignment` is the bitwise or of all addresses and strides that take part.
inline CopyKind CopyKindOf(uint32_t row_bytes, uint64_t alignment) {
  alignment |= row_bytes;
  if (alignment % 4 != 0) return CopyKind::kBytes;
  if (alignment % 16 != 0) return CopyKind::kWords;
  switch (row_bytes) {
    case 64:
      return CopyKind::kUnits4;
    case 128:
      return CopyKind::kUnits8;
    case 256:
      return CopyKind::kUnits16;
    case 512:
      return CopyKind::kUnits32;
    default:
      return CopyKind::kUnits;
  }
}

struct QueryTask {
  QueryView view;
  uint32_t tile_begin;  // tiles of the tasks before it
  CopyKind kind;
};

}  // namespace hps
