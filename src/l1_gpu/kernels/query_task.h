// One query of a launch, as the kernels see it. For kernels and their launches only.
#pragma once

#include <cstdint>

#include "l1_gpu/kernels/kernels.h"

namespace hps {

// The row copies that kernels are specialized for.
enum class CopyKind : uint8_t {
  kBytes,    // units of one byte
  kWords,    // units of 4 bytes
  kUnits,    // units of 16 bytes, any number; so are all kinds from here on
  kUnits4,   // 64 bytes
  kUnits8,   // 128 bytes
  kUnits16,  // 256 bytes
  kUnits32,  // 512 bytes
};

// `alignment` is the bitwise OR of all addresses and strides involved.
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

// A QueryView reduced to what a query needs: up to 32 of them are passed with a launch, which takes
// longer the more it carries. One fits into a line of constant memory.
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

// Common to all tasks of a launch.
struct QueryCall {
  WriteSequence* write_sequence;  // of all tables; null without tables
  uint32_t generation;
  bool records_misses;  // otherwise misses are not listed
  MissBuffers misses;
};

// Misses of a launch for which level 2 is read, at most: twice as many as the host asks the device
// for (query/miss_route.h), since it only guesses their number. The others are left to the host.
inline constexpr uint32_t kDirectMissesMax = 4096;

}  // namespace hps
