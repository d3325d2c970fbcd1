// Copies the rows of a lookup with outputs on the host from the device to the caller's memory.
//
// Rows are packed in the call's output memory on the device, query after query. They travel through
// two halves of pinned memory: one half is copied to the caller while the other is filled.
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
  // Reserves all memory. `buffers` must outlive this object.
  explicit HostOutput(CallBuffers& buffers);

  // Computes the layout of the queries' rows and makes room; there are none if the queries are in
  // device memory. `queries` stays valid until the next Begin. Errors: RESOURCE_EXHAUSTED,
  // INTERNAL.
  absl::Status Begin(std::span<const DeviceCacheQuery> queries, cudaStream_t stream);

  size_t key_count() const { return key_count_; }  // of all queries with outputs on the host
  // The offset of the rows of query q in the output memory; aligned to 16 bytes.
  uint64_t begin_bytes(size_t query) const { return begin_[query]; }

  // Starts the copy of the rows if there are few. If no key misses, they have arrived when the
  // probe has been waited for. Errors: INTERNAL.
  absl::Status FetchAhead();
  // Tells when the rows have arrived. Null if FetchAhead has not started their copy.
  cudaEvent_t fetched_ahead() const {
    return is_fetched_ahead_ ? buffers_.output.done[0].get() : nullptr;
  }

  // Copies all rows and statuses to the caller. `unchanged`: none has changed since FetchAhead.
  // Errors: DEADLINE_EXCEEDED, INTERNAL.
  absl::Status Copy(bool unchanged, Deadline deadline);

 private:
  // Starts the copy of a chunk; the first chunk includes the statuses.
  absl::Status Fetch(size_t chunk);
  // Copies an arrived chunk to the caller's rows.
  void Deliver(size_t chunk);
  void DeliverStatuses();

  CallBuffers& buffers_;
  cudaStream_t stream_ = nullptr;
  std::span<const DeviceCacheQuery> queries_;
  std::vector<uint64_t> begin_;  // [queries + 1]
  size_t key_count_ = 0;
  bool wants_status_ = false;
  bool is_fetched_ahead_ = false;
};

}  // namespace hps
