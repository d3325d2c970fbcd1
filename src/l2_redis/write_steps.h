// A write of many rows to Redis is done in steps. For RedisTable and SharedRedisTable.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tier/lossy_tier.h"

namespace hps {

// Of one insertion under the fence, so that a change never waits for more than this.
inline constexpr size_t kInsertKeysMax = 4096;
inline constexpr size_t kStepBytesMax = size_t{4} << 20;

// Keys of one step of a write.
inline size_t StepKeys(size_t row_bytes) {
  return std::clamp<size_t>(kStepBytesMax / row_bytes, 1, kInsertKeysMax);
}

inline bool IsAbsent(const RowBatch& batch, size_t i) {
  return !batch.absent.empty() && batch.absent[i] != 0;
}

// Rows begin to end - 1.
inline RowBatch Part(const RowBatch& batch, size_t begin, size_t end) {
  RowBatch part = {.keys = batch.keys.subspan(begin, end - begin),
                   .rows = {.data = batch.rows.data + begin * batch.rows.stride_bytes,
                            .row_count = end - begin,
                            .row_bytes = batch.rows.row_bytes,
                            .stride_bytes = batch.rows.stride_bytes}};
  if (!batch.versions.empty()) part.versions = batch.versions.subspan(begin, end - begin);
  if (!batch.absent.empty()) part.absent = batch.absent.subspan(begin, end - begin);
  return part;
}

}  // namespace hps
