// One query of a launch, as the kernels see it. For kernels and their launches.
#pragma once

#include <cstdint>

#include "l1_gpu/kernels/kernels.h"

namespace hps {

// The kinds of copies that kernels are made for.
enum class CopyKind : uint8_t {
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

// A QueryView without what a query does not need: up to 32 of them travel with a launch, which
// takes the longer the more it carries. One is a line of constant memory.
struct alignas(64) QueryTask {
  const Key* keys;
  Slab* slabs;
  std::byte* table_rows;
  std::byte* rows;
  KeyStatus* status;
  uint64_t row_stride_bytes;
  uint32_t key_count;
  uint32_t first_key;
  uint32_t slab_count;
  uint16_t row_bytes;
  uint8_t stamp_epoch;
  CopyKind kind;
};
static_assert(sizeof(QueryTask) == 64);
static_assert(kStampEpochs <= UINT8_MAX);

// What all tasks of a launch have in common.
struct QueryCall {
  WriteSequence* write_sequence;  // of all tables; null where there are none
  uint32_t generation;
  bool records_misses;  // else misses are passed over
  MissBuffers misses;
};

}  // namespace hps
