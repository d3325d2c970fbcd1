// A lookup's pinned memory for rows that the device lacks, and the same room on the device.
//
// It is a few blocks. The first one is made with the lookup; another one is added when a lookup has
// more rows than room, as large as all blocks before it. Blocks are never freed before the lookup
// itself, because the runtime would wait for the whole device.
//
// CopyAhead copies rows to the device before their answers are known, on a stream of its own.
// AwaitCopies orders later work on another stream behind the copies.
//
// Not thread-safe, except for StagingGrowth and copied().
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gpu/cuda_resources.h"
#include "hps/span.h"

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
  // Makes the first block, if `bytes` is not 0. With `growth`, which must outlive the staging, Take
  // may add others. Errors: RESOURCE_EXHAUSTED, INTERNAL. REQUIRES: the device is current.
  absl::Status Create(size_t bytes, StagingGrowth* growth);

  // Makes all room free again. REQUIRES: the device's work on the rows has ended.
  void Reset();

  // Room for `bytes` bytes, in one piece. Rooms that are adjacent on the host are adjacent on the
  // device, too. Takes milliseconds where a block is added. Null if there is no room.
  std::byte* Take(size_t bytes);

  // The device's memory for a row in the staging. Null for other rows.
  std::byte* DeviceOf(const std::byte* row) const;
  // Whether there are rows, and they are packed in the staging.
  bool Holds(const HostRows& rows) const;

  // Starts the copy of rows to the device. Errors: INTERNAL. REQUIRES: Holds(rows).
  absl::Status CopyAhead(const HostRows& rows);
  // Whether CopyAhead was called since Reset.
  bool has_copies() const { return copies_ != Copies::kNone; }
  // Records copied() behind all copies so far, once for many copies. Errors: INTERNAL.
  absl::Status RecordCopies();
  cudaEvent_t copied() const { return copied_.get(); }
  // Lets later work on `stream` wait for all copies so far. Errors: INTERNAL.
  absl::Status AwaitCopies(cudaStream_t stream);

  size_t bytes() const;  // of all blocks

 private:
  // Adds a block for `bytes_min` bytes or more. Returns whether it has.
  bool Grow(size_t bytes_min);

  struct Block {
    PinnedBuffer pinned;  // a gap larger
    DeviceBuffer device;
    size_t used_bytes = 0;
  };

  int device_ = 0;
  CudaStream stream_;
  CudaEvent copied_;
  std::vector<Block> blocks_;
  StagingGrowth* growth_ = nullptr;
  enum class Copies { kNone, kStarted, kRecorded } copies_ = Copies::kNone;
};

}  // namespace hps
