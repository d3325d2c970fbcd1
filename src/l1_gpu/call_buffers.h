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
#include "gpu/cuda_resources.h"
#include "hps/types.h"
#include "l1_gpu/call_staging.h"
#include "l1_gpu/misses.h"

namespace hps {

struct CallSizes {
  size_t keys_max = 0;
  size_t staging_bytes = 0;                 // rows that the call lends through Staging, at first
  StagingGrowth* staging_growth = nullptr;  // null: they stay so many; else it outlives the call
};

inline constexpr size_t kHalfBounceBytes = kCallBounceBytes / 2;
inline constexpr size_t kCallCountsBytes = kTablesPerCallMax * kKeyStatusCount * sizeof(uint32_t);

// Memory for the same elements on the host, pinned, and on the device.
template <typename T>
struct Mirrored {
  T* pinned = nullptr;
  T* device = nullptr;
};

// One half of the double buffer that sends answers to the device: the host fills one half while the
// other is in transfer.
struct DoubleBufferHalf {
  Mirrored<std::byte> bounce;        // [kHalfBounceBytes]
  std::byte* device_rows = nullptr;  // [device_rows_bytes]: rows that are not copied ahead
  CudaEvent done;
};

// What brings the rows of outputs to the host.
struct OutputBuffers {
  DeviceBuffer device;          // rows, packed, query after query
  std::byte* pinned = nullptr;  // [kCallOutputBytes]
  CudaEvent done[2];            // of the halves of `pinned`
};

struct CallBuffers {
  // Errors: RESOURCE_EXHAUSTED, INTERNAL; nothing stays allocated. REQUIRES: the device is current.
  static absl::StatusOr<std::unique_ptr<CallBuffers>> Create(const CallSizes& sizes);

  // Makes room in output.device for the rows of outputs on the host, at most kCallHostRowsBytesMax,
  // for later work on stream `user`. Does not wait for the device. Errors: RESOURCE_EXHAUSTED,
  // INTERNAL. REQUIRES: the last lookup is over.
  absl::Status GrowOutput(uint64_t bytes, cudaStream_t user);

  // Zeroes the memory that the kernels expect to be zero, and waits for it.
  absl::Status ZeroMisses();

  CallSizes sizes;
  CudaStream stream;  // for calls whose caller passes no stream
  CudaEvent probed;
  CudaEvent last;  // after all work of the call on the caller's stream
  DeviceBuffer device;
  PinnedBuffer pinned;
  CallStaging staging;
  OutputBuffers output;

  // Parts of the buffers above; the misses come first.
  MissBuffers misses;
  size_t device_rows_bytes = 0;  // of one half
  DoubleBufferHalf halves[2];
  Mirrored<Key> keys;            // [keys_max], of queries on the host
  Mirrored<KeyStatus> statuses;  // [keys_max], of queries on the host
  Mirrored<uint32_t> counts;     // [kTablesPerCallMax][kKeyStatusCount]
};

}  // namespace hps
