#include "l1_gpu/host_output.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/alignment.h"

namespace hps {
namespace {

constexpr size_t kChunkBytes = kCallOutputBytes / 2;

// Rows of at most this size transfer in a few microseconds, less than the cost of a second
// synchronization.
constexpr size_t kAheadBytesMax = size_t{256} << 10;

}  // namespace

HostOutput::HostOutput(CallBuffers& buffers) : buffers_(buffers) {
  begin_.reserve(kTablesPerCallMax + 1);
}

absl::Status HostOutput::Begin(std::span<const DeviceCacheQuery> queries, cudaStream_t stream) {
  if (!queries.empty() && queries.front().space == MemorySpace::kDevice) queries = {};
  stream_ = stream;
  queries_ = queries;
  begin_.assign(1, 0);
  key_count_ = 0;
  wants_status_ = is_fetched_ahead_ = false;
  for (const DeviceCacheQuery& query : queries_) {
    begin_.push_back(begin_.back() + RoundUp(query.key_count * query.row_bytes, kRowAlignment));
    key_count_ += query.key_count;
    wants_status_ |= query.status != nullptr;
  }
  return buffers_.GrowOutput(begin_.back(), stream_);
}

absl::Status HostOutput::FetchAhead() {
  if (begin_.back() > kAheadBytesMax || begin_.back() == 0) return absl::OkStatus();
  is_fetched_ahead_ = true;
  return Fetch(0);
}

absl::Status HostOutput::Fetch(size_t chunk) {
  const uint64_t begin = uint64_t{chunk} * kChunkBytes;
  const uint64_t bytes = std::min<uint64_t>(kChunkBytes, begin_.back() - begin);
  const size_t half = chunk % 2;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(buffers_.output.pinned + half * kChunkBytes,
                                                 buffers_.output.device.data() + begin, bytes,
                                                 cudaMemcpyDeviceToHost, stream_),
                                 "copy of rows to the host"));
  if (chunk == 0 && wants_status_) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(buffers_.statuses.pinned, buffers_.statuses.device, key_count_,
                                   cudaMemcpyDeviceToHost, stream_),
                   "copy of statuses to the host"));
  }
  return CudaStatus(cudaEventRecord(buffers_.output.done[half].get(), stream_), "rows");
}

absl::Status HostOutput::Copy(bool unchanged, Deadline deadline) {
  const size_t chunks = (begin_.back() + kChunkBytes - 1) / kChunkBytes;
  if (chunks == 0) return absl::OkStatus();
  if (!unchanged || !is_fetched_ahead_) HPS_RETURN_IF_ERROR(Fetch(0));
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) HPS_RETURN_IF_ERROR(Fetch(chunk + 1));
    HPS_RETURN_IF_ERROR(
        WaitFor(buffers_.output.done[chunk % 2].get(), deadline, "the copy of rows to the host"));
    Deliver(chunk);
  }
  DeliverStatuses();
  return absl::OkStatus();
}

void HostOutput::Deliver(size_t chunk) {
  const uint64_t chunk_begin = uint64_t{chunk} * kChunkBytes;
  const uint64_t chunk_end = std::min<uint64_t>(chunk_begin + kChunkBytes, begin_.back());
  const std::byte* const arrived = buffers_.output.pinned + chunk % 2 * kChunkBytes;
  for (size_t q = 0; q < queries_.size(); ++q) {
    const DeviceCacheQuery& query = queries_[q];
    const uint64_t rows_end = begin_[q] + query.key_count * query.row_bytes;
    const uint64_t begin = std::max(begin_[q], chunk_begin);
    const uint64_t end = std::min(rows_end, chunk_end);
    if (begin >= end) continue;
    const std::byte* from = arrived + (begin - chunk_begin);
    if (query.row_stride_bytes == query.row_bytes) {
      std::memcpy(query.rows + (begin - begin_[q]), from, end - begin);
      continue;
    }
    // The chunk may begin or end within a row.
    for (uint64_t at = begin - begin_[q]; at < end - begin_[q];) {
      const uint64_t row = at / query.row_bytes;
      const uint64_t within = at % query.row_bytes;
      const uint64_t bytes = std::min(query.row_bytes - within, end - begin_[q] - at);
      std::memcpy(query.rows + row * query.row_stride_bytes + within, from, bytes);
      from += bytes;
      at += bytes;
    }
  }
}

void HostOutput::DeliverStatuses() {
  const KeyStatus* from = buffers_.statuses.pinned;
  for (const DeviceCacheQuery& query : queries_) {
    if (query.status != nullptr) std::memcpy(query.status, from, query.key_count);
    from += query.key_count;
  }
}

}  // namespace hps
