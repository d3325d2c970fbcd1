// Alignment of memory that the device reads, and parts of a block that have it.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace hps {

// Of the parts of one block: as much as a block of cudaMalloc has.
inline constexpr size_t kDeviceAlignment = 256;

// Of a query's rows in a buffer: the kernels move 16 bytes at once.
inline constexpr size_t kRowAlignment = 16;

// Divides one block, part after part. Without a block it only counts bytes.
class BlockParts {
 public:
  explicit BlockParts(std::byte* block) : block_(block) {}

  // `count` elements of T; null without a block.
  template <typename T>
  T* Take(size_t count) {
    std::byte* const part = block_ == nullptr ? nullptr : block_ + used_bytes_;
    used_bytes_ += RoundUp(count * sizeof(T), kDeviceAlignment);
    return static_cast<T*>(static_cast<void*>(part));
  }
  size_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* const block_;
  size_t used_bytes_ = 0;
};

}  // namespace hps
