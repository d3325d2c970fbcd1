#include "l1_gpu/call_buffers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "hps/table_spec.h"
#include "l1_gpu/alignment.h"

namespace hps {
namespace {

// A half must hold one of the widest rows, its status and a default row.
static_assert(kHalfBounceBytes >= 4 * kRowBytesMax);

constexpr Duration kZeroingWaitMax = std::chrono::seconds(60);

constexpr uint64_t kOutputBytesMin = uint64_t{1} << 20;
static_assert(std::has_single_bit(kCallHostRowsBytesMax));

}  // namespace

absl::StatusOr<std::unique_ptr<CallBuffers>> CallBuffers::Create(const CallSizes& sizes) {
  auto buffers = std::make_unique<CallBuffers>();
  buffers->sizes = sizes;
  // A half carries half of the staging. A row is never split, and a row that is probed again needs
  // room twice.
  buffers->device_rows_bytes = std::max(RoundUp(sizes.staging_bytes / 2, 16), 4 * kRowBytesMax);
  // Sets the parts. Returns the bytes of both blocks.
  const auto divide = [&](std::byte* device_block, std::byte* pinned_block) {
    BlockParts device_parts(device_block);
    BlockParts pinned_parts(pinned_block);
    device_parts.Take<std::byte>(MissDeviceBytes(sizes.keys_max));
    pinned_parts.Take<std::byte>(MissPinnedBytes(sizes.keys_max));
    const auto take = [&]<typename T>(Mirrored<T>& part, size_t count) {
      part = {.pinned = pinned_parts.Take<T>(count), .device = device_parts.Take<T>(count)};
    };
    take(buffers->keys, sizes.keys_max);
    take(buffers->statuses, sizes.keys_max);
    take(buffers->counts, kCallCountsBytes / sizeof(uint32_t));
    buffers->output.pinned = pinned_parts.Take<std::byte>(kCallOutputBytes);
    for (DoubleBufferHalf& half : buffers->halves) {
      take(half.bounce, kHalfBounceBytes);
      half.device_rows = device_parts.Take<std::byte>(buffers->device_rows_bytes);
    }
    return std::pair(device_parts.used_bytes(), pinned_parts.used_bytes());
  };
  const auto [device_bytes, pinned_bytes] = divide(nullptr, nullptr);
  HPS_ASSIGN_OR_RETURN(buffers->device, MakeDeviceBuffer("a call's buffers", device_bytes));
  HPS_ASSIGN_OR_RETURN(buffers->pinned, MakePinnedBuffer("a call's pinned buffers", pinned_bytes));
  divide(buffers->device.data(), buffers->pinned.data());
  HPS_RETURN_IF_ERROR(buffers->staging.Create(sizes.staging_bytes, sizes.staging_growth));
  HPS_ASSIGN_OR_RETURN(buffers->stream, MakeStream(StreamPriority::kHigh));
  for (CudaEvent* event :
       {&buffers->probed, &buffers->last, &buffers->halves[0].done, &buffers->halves[1].done,
        &buffers->output.done[0], &buffers->output.done[1]}) {
    HPS_ASSIGN_OR_RETURN(*event, MakeEvent());
  }
  buffers->misses =
      CarveMissBuffers(sizes.keys_max, buffers->device.data(), buffers->pinned.data());
  const absl::Status zeroed = buffers->ZeroMisses();
  // Freeing would block on a device that hangs.
  if (absl::IsDeadlineExceeded(zeroed)) (void)buffers.release();
  HPS_RETURN_IF_ERROR(zeroed);
  return buffers;
}

absl::Status CallBuffers::ZeroMisses() {
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(device.data(), 0, MissDeviceBytes(sizes.keys_max), stream.get()),
                 "a new call"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(last.get(), stream.get()), "a new call"));
  HPS_RETURN_IF_ERROR(
      WaitFor(last.get(), DeadlineAfter(RealClock(), kZeroingWaitMax), "a new call"));
  // Last, because it takes longer than all of the above; on a failed device every lookup fails
  // anyway.
  std::memset(pinned.data(), 0, MissPinnedBytes(sizes.keys_max));
  return absl::OkStatus();
}

absl::Status CallBuffers::GrowOutput(uint64_t bytes, cudaStream_t user) {
  if (bytes <= output.device.bytes()) return absl::OkStatus();
  if (bytes > kCallHostRowsBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("gpu cache: a lookup with ", bytes,
                                                     " bytes of rows on the host, at most ",
                                                     kCallHostRowsBytesMax));
  }
  // The content is not needed: the last lookup is over.
  HPS_RETURN_IF_ERROR(FreeInOrder(std::exchange(output.device, {}), stream.get()));
  // Grow to at least twice the size, so that growing is rare.
  HPS_ASSIGN_OR_RETURN(
      output.device,
      MakeDeviceBufferInOrder("rows of a call on the host",
                              std::bit_ceil(std::max(bytes, kOutputBytesMin)), stream.get()));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(last.get(), stream.get()), "rows of a call"));
  return CudaStatus(cudaStreamWaitEvent(user, last.get()), "rows of a call");
}

}  // namespace hps
