#include "l1_gpu/call_buffers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "l1_gpu/alignment.h"
#include "l1_gpu/cuda_status.h"

namespace hps {
namespace {

constexpr size_t kCountsBytes = kTablesPerCallMax * kKeyStatusCount * sizeof(uint32_t);

// A half must hold one of the widest rows, its status and a default row.
static_assert(kHalfBounceBytes >= 4 * kRowBytesMax);

constexpr Duration kZeroingWaitMax = std::chrono::seconds(60);

constexpr uint64_t kOutputBytesMin = uint64_t{1} << 20;
static_assert(std::has_single_bit(kCallHostRowsBytesMax));

// Hands out parts of a block in order; without a block it only counts bytes.
class Parts {
 public:
  explicit Parts(std::byte* block) : next_(block) {}

  template <typename T>
  void Take(T*& part, size_t bytes) {
    const size_t room_bytes = RoundUp(bytes, kDeviceAlignment);
    bytes_ += room_bytes;
    if (next_ == nullptr) return;
    part = static_cast<T*>(static_cast<void*>(next_));
    next_ += room_bytes;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* next_;
  size_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CallBuffers>> CallBuffers::Create(const CallSizes& sizes) {
  auto buffers = std::make_unique<CallBuffers>();
  buffers->sizes = sizes;
  // A half carries half of the staging. A row is never split, and a row that is probed again needs
  // room twice.
  buffers->device_rows_bytes = std::max(RoundUp(sizes.staging_bytes / 2, 16), 4 * kRowBytesMax);
  const auto take_device = [&](std::byte* block) {
    Parts parts(block);
    parts.Take(buffers->miss_device_, MissDeviceBytes(sizes.keys_max));
    parts.Take(buffers->device_keys, sizes.keys_max * sizeof(Key));
    parts.Take(buffers->device_status, sizes.keys_max);
    parts.Take(buffers->device_counts, kCountsBytes);
    for (DoubleBufferHalf& half : buffers->halves) {
      parts.Take(half.device, kHalfBounceBytes);
      parts.Take(half.device_rows, buffers->device_rows_bytes);
    }
    return parts.bytes();
  };
  const auto take_pinned = [&](std::byte* block) {
    Parts parts(block);
    parts.Take(buffers->miss_pinned_, MissPinnedBytes(sizes.keys_max));
    parts.Take(buffers->pinned_keys, sizes.keys_max * sizeof(Key));
    parts.Take(buffers->pinned_status, sizes.keys_max);
    parts.Take(buffers->pinned_counts, kCountsBytes);
    parts.Take(buffers->pinned_output, kCallOutputBytes);
    for (DoubleBufferHalf& half : buffers->halves) parts.Take(half.pinned, kHalfBounceBytes);
    return parts.bytes();
  };
  HPS_ASSIGN_OR_RETURN(buffers->device, MakeDeviceBuffer("a call's buffers", take_device(nullptr)));
  HPS_ASSIGN_OR_RETURN(buffers->pinned,
                       MakePinnedBuffer("a call's pinned buffers", take_pinned(nullptr)));
  HPS_RETURN_IF_ERROR(buffers->staging.Create(sizes.staging_bytes, sizes.staging_growth));
  take_device(buffers->device.data());
  take_pinned(buffers->pinned.data());
  HPS_ASSIGN_OR_RETURN(buffers->stream, MakeStream(StreamPriority::kHigh));
  HPS_ASSIGN_OR_RETURN(buffers->copy_ahead_stream, MakeStream(StreamPriority::kHigh));
  for (CudaEvent* event :
       {&buffers->probed, &buffers->last, &buffers->copied_ahead, &buffers->halves[0].done,
        &buffers->halves[1].done, &buffers->output_done[0], &buffers->output_done[1]}) {
    HPS_ASSIGN_OR_RETURN(*event, MakeEvent());
  }
  buffers->misses = CarveMissBuffers(sizes.keys_max, buffers->miss_device_, buffers->miss_pinned_);
  const absl::Status zeroed = buffers->ZeroMisses();
  // Freeing would block on a device that hangs.
  if (absl::IsDeadlineExceeded(zeroed)) (void)buffers.release();
  HPS_RETURN_IF_ERROR(zeroed);
  return buffers;
}

absl::Status CallBuffers::ZeroMisses() {
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(miss_device_, 0, MissDeviceBytes(sizes.keys_max), stream.get()),
                 "a new call"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(last.get(), stream.get()), "a new call"));
  HPS_RETURN_IF_ERROR(
      WaitFor(last.get(), DeadlineAfter(RealClock(), kZeroingWaitMax), "a new call"));
  // Last, because it takes longer than all of the above; on a failed device every lookup fails
  // anyway.
  std::memset(miss_pinned_, 0, MissPinnedBytes(sizes.keys_max));
  return absl::OkStatus();
}

absl::Status CallBuffers::GrowOutput(uint64_t bytes, cudaStream_t user) {
  if (bytes <= output.bytes()) return absl::OkStatus();
  if (bytes > kCallHostRowsBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("gpu cache: a lookup with ", bytes,
                                                     " bytes of rows on the host, at most ",
                                                     kCallHostRowsBytesMax));
  }
  // The content is not needed: the last lookup is over.
  HPS_RETURN_IF_ERROR(FreeInOrder(std::exchange(output, {}), stream.get()));
  // Grow to at least twice the size, so that growing is rare.
  HPS_ASSIGN_OR_RETURN(output, MakeDeviceBufferInOrder(
                                   "rows of a call on the host",
                                   std::bit_ceil(std::max(bytes, kOutputBytesMin)), stream.get()));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(last.get(), stream.get()), "rows of a call"));
  return CudaStatus(cudaStreamWaitEvent(user, last.get()), "rows of a call");
}

}  // namespace hps
