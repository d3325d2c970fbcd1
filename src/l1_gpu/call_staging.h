// A lookup's pinned memory for rows that the device lacks, and the same room on the device.
//
// It is a few blocks. The first one is made with the lookup; another one is added when a lookup has
// more rows than room, as large as all blocks before it. Blocks are never freed before the lookup
// itself, because the runtime would wait for the whole device.
//
// Not thread-safe, except for StagingGrowth.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "l1_gpu/cuda_resources.h"

namespace hps {

// The bytes by which the staging of all lookups of a cache may still grow.
class StagingGrowth {
 public:
  explicit StagingGrowth(uint64_t bytes_max) : bytes_left_(bytes_max) {}

  // Takes up to `bytes_max` and at least `bytes_min` bytes. Returns their number; 0 = too few are
  // left.
  size_t Take(size_t bytes_min, size_t bytes_max);

 private:
  std::atomic<uint64_t> bytes_left_;
};

class CallStaging {
 public:
  // Makes the first block, if `bytes` is not 0. With `growth`, which must outlive the staging, Grow
  // may add others. Errors: RESOURCE_EXHAUSTED, INTERNAL. REQUIRES: the device is current.
  absl::Status Create(size_t bytes, StagingGrowth* growth);

  // Makes all room free again.
  void Reset();

  // Room for `bytes` bytes, in one piece. Rooms that are adjacent on the host are adjacent on the
  // device, too. Null if there is none.
  std::byte* Take(size_t bytes);

  // Adds a block for `bytes_min` bytes or more, which takes milliseconds. `copies` is the stream of
  // the copies to the device. Returns whether Take now finds the room. REQUIRES: the device is
  // current.
  bool Grow(size_t bytes_min, cudaStream_t copies);
  bool may_grow() const { return growth_ != nullptr; }

  // The device's memory for a row in the staging. Null for other rows.
  std::byte* DeviceOf(const std::byte* row) const;

  size_t bytes() const;  // of all blocks

 private:
  struct Block {
    PinnedBuffer pinned;  // a gap larger
    DeviceBuffer device;
    size_t used_bytes = 0;
  };

  std::vector<Block> blocks_;
  StagingGrowth* growth_ = nullptr;
};

}  // namespace hps
