// A row in the memory of a shard: the header, then the vector, then the optimizer's state
// (train/sparse_optimizer.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "hps/types.h"

namespace hps {

struct RowHeader {
  Key key = 0;
  uint32_t last_seen = 0;  // the training step that last had the key
  uint32_t changed = 0;    // the number of the last change, for deltas
  uint32_t updates = 0;    // of this row: Adam's t
  uint32_t place = 0;      // among the different keys of step `last_seen`
  bool is_live = false;
  bool is_published = false;  // an earlier delta of a publication had it
  bool is_saved = false;      // an earlier delta of a checkpoint had it
};
static_assert(sizeof(RowHeader) == 32);

inline float* ValuesOf(RowHeader* row) { return static_cast<float*>(static_cast<void*>(row + 1)); }

// Rows of whole cache lines start at one; narrow rows are packed.
constexpr size_t RowStride(size_t value_count) {
  const size_t bytes = sizeof(RowHeader) + value_count * sizeof(float);
  return RoundUp(bytes, bytes >= 128 ? 64 : 16);
}

}  // namespace hps
