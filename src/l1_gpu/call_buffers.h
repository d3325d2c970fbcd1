// All memory of one lookup, on the device and pinned on the host, and the events that tell when it
// is free again. Allocated with its call; the staging and the rows of outputs on the host may grow
// later.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/limits.h"
#include "hps/types.h"
#include "l1_gpu/call_staging.h"
#include "l1_gpu/cuda_resources.h"
#include "l1_gpu/misses.h"

namespace hps {

struct CallSizes {
  size_t keys_max = 0;
  size_t staging_bytes = 0;                 // rows that the call lends through Staging, at first
  StagingGrowth* staging_growth = nullptr;  // null: they stay so many; else it outlives the call
};

inline constexpr size_t kHalfBounceBytes = kCallBounceBytes / 2;

// One half of the double buffer that sends answers to the device: the host fills one half while the
// other is in transfer.
struct DoubleBufferHalf {
  std::byte* pinned = nullptr;       // [kHalfBounceBytes]
  std::byte* device = nullptr;       // [kHalfBounceBytes]: the same, on the device
  std::byte* device_rows = nullptr;  // [device_rows_bytes]: rows that are not copied ahead
  CudaEvent done;
};

struct CallBuffers {
  // Errors: RESOURCE_EXHAUSTED, INTERNAL; nothing stays allocated. REQUIRES: the device is current.
  static absl::StatusOr<std::unique_ptr<CallBuffers>> Create(const CallSizes& sizes);

  // Makes room for the rows of outputs on the host, at most kCallHostRowsBytesMax, for later work
  // on stream `user`. Does not wait for the device. Errors: RESOURCE_EXHAUSTED, INTERNAL. REQUIRES:
  // the last lookup is over.
  absl::Status GrowOutput(uint64_t bytes, cudaStream_t user);

  // Zeroes the memory that the kernels expect to be zero, and waits for it.
  absl::Status ZeroMisses();

  CallSizes sizes;
  CudaStream stream;  // for calls whose caller passes no stream
  CudaEvent probed;
  CudaEvent last;                // after all work of the call on the caller's stream
  CudaStream copy_ahead_stream;  // for rows that are copied ahead of their answers
  CudaEvent copied_ahead;        // after the last copy on copy_ahead_stream
  DeviceBuffer device;
  PinnedBuffer pinned;
  DeviceBuffer output;  // rows for the host, packed, query after query
  CallStaging staging;

  // Parts of the buffers above.
  MissBuffers misses;
  size_t device_rows_bytes = 0;  // of one half
  DoubleBufferHalf halves[2];
  Key* pinned_keys = nullptr;          // [keys_max], of queries on the host
  Key* device_keys = nullptr;          // [keys_max]
  KeyStatus* pinned_status = nullptr;  // [keys_max]
  KeyStatus* device_status = nullptr;  // [keys_max]
  std::byte* pinned_output = nullptr;  // [kCallOutputBytes]
  CudaEvent output_done[2];            // of its halves
  uint32_t* device_counts = nullptr;   // [kTablesPerCallMax][kKeyStatusCount]
  uint32_t* pinned_counts = nullptr;   // the same

 private:
  std::byte* miss_device_ = nullptr;
  std::byte* miss_pinned_ = nullptr;
};

}  // namespace hps
