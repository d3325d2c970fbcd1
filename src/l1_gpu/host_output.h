// Brings the rows of a lookup whose outputs lie on the host from the device to their places.
//
// Rows lie packed in the call's output memory on the device, query after query. They travel through
// two halves of pinned memory: while one is copied to the caller, the other one is filled.
//
// Not thread-safe. Writes to the caller's memory only within Copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "l1_gpu/call_buffers.h"
#include "tier/device_cache.h"

namespace hps {

class HostOutput {
 public:
  // All memory is reserved here. `buffers` outlives it.
  explicit HostOutput(CallBuffers& buffers);

  // Lays the rows of the queries out and makes room. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  absl::Status Begin(std::span<const DeviceCacheQuery> queries, cudaStream_t stream);

  // Where the rows of query q begin in the output memory; aligned to 16 bytes.
  uint64_t begin_bytes(size_t query) const { return begin_[query]; }

  // Asks for rows that a lookup without misses needs, where they are few: they are there when the
  // probe is waited for. Returns whether it did. Errors: INTERNAL.
  absl::StatusOr<bool> FetchAhead();
  cudaEvent_t fetched_ahead() const { return buffers_.output_done[0].get(); }

  // Copies all rows and statuses to the caller; `fetched` when FetchAhead's are still right.
  // Errors: DEADLINE_EXCEEDED, INTERNAL.
  absl::Status Copy(bool fetched, Deadline deadline);

 private:
  size_t chunk_count() const;
  // Starts the copy of a chunk, with the statuses if it is the first.
  absl::Status Fetch(size_t chunk);
  // Copies a chunk that has arrived to the caller's rows.
  void Deliver(size_t chunk);
  void DeliverStatuses();

  CallBuffers& buffers_;
  cudaStream_t stream_ = nullptr;
  std::vector<DeviceCacheQuery> queries_;
  std::vector<uint64_t> begin_;  // [queries + 1]
  size_t key_count_ = 0;
  bool wants_status_ = false;
};

}  // namespace hps
