#include "train_cpu/row_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/bytes.h"
#include "base/macros.h"

namespace hps {
namespace {

// Of the pages that the system makes huge on request: fewer of the processor's address
// translations miss. Chunks are at least as large.
constexpr size_t kHugePageBytes = size_t{2} << 20;

int ChunkShift(size_t stride_bytes) {
  return static_cast<int>(std::bit_width((kHugePageBytes - 1) / stride_bytes));
}

}  // namespace

void RowArena::Release::operator()(std::byte* bytes) const {
  ::operator delete (bytes, std::align_val_t{kHugePageBytes});
}

RowArena::RowArena(size_t value_count)
    : value_count_(value_count),
      stride_bytes_(RowStride(value_count)),
      chunk_shift_(ChunkShift(stride_bytes_)),
      chunk_mask_((uint32_t{1} << chunk_shift_) - 1) {}

RowArena::Chunk RowArena::NewChunk() const {
  const size_t bytes = RoundUp(chunk_bytes(), kHugePageBytes);
  void* const memory = ::operator new (bytes, std::align_val_t{kHugePageBytes});
  // The first chunk of a small table stays in ordinary pages, which take no more than is used.
  // Without huge pages everything works as well, only slower.
  if (!chunks_.empty()) static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
  return Chunk(static_cast<std::byte*>(memory));
}

uint32_t RowArena::Take() {
  uint32_t slot = slot_end_;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    HPS_CHECK(slot_end_ < kSlotsMax);
    if (slot_end_ >> chunk_shift_ == chunks_.size()) {
      chunks_.reserve(chunks_.size() + 1);
      chunks_.push_back(NewChunk());
    }
    // Free must not fail.
    if (free_.capacity() <= slot_end_) free_.reserve(std::max(size_t{64}, size_t{slot_end_} * 2));
    ++slot_end_;
  }
  new (at(slot)) RowHeader();
  return slot;
}

void RowArena::Free(uint32_t slot) {
  HPS_DCHECK(at(slot)->is_live);
  at(slot)->is_live = false;
  free_.push_back(slot);
}

}  // namespace hps
