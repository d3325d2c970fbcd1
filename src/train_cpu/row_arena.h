// The memory of a shard's rows: numbered slots of one size, in chunks that never move.
//
// A freed slot is taken again before new ones. Memory is returned with the arena. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "train_cpu/row_layout.h"

namespace hps {

class RowArena {
 public:
  // Rows of `value_count` values, states included.
  explicit RowArena(size_t value_count);

  static constexpr uint32_t kSlotsMax = UINT32_MAX;

  // A slot whose header is as constructed; the values are undefined. May throw std::bad_alloc; then
  // nothing changed. REQUIRES: fewer than kSlotsMax slots are in use.
  uint32_t Take();
  void Free(uint32_t slot);

  RowHeader* at(uint32_t slot) const {
    std::byte* const chunk = chunks_[slot >> chunk_shift_].get();
    return static_cast<RowHeader*>(
        static_cast<void*>(chunk + size_t{slot & chunk_mask_} * stride_bytes_));
  }
  // Slots below it have been taken at some time.
  uint32_t slot_end() const { return slot_end_; }
  size_t value_count() const { return value_count_; }
  size_t bytes() const { return chunks_.size() * chunk_bytes(); }

 private:
  struct Release {
    void operator()(std::byte* bytes) const;
  };
  using Chunk = std::unique_ptr<std::byte, Release>;

  size_t chunk_bytes() const { return (size_t{chunk_mask_} + 1) * stride_bytes_; }
  Chunk NewChunk() const;

  const size_t value_count_;
  const size_t stride_bytes_;
  const int chunk_shift_;
  const uint32_t chunk_mask_;
  std::vector<Chunk> chunks_;
  std::vector<uint32_t> free_;
  uint32_t slot_end_ = 0;
};

}  // namespace hps
