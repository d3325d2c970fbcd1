#include "l1_gpu/call_staging.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/alignment.h"

namespace hps {
namespace {

// A gap at the end of each block in the host's memory. Without it two blocks could be adjacent
// there. Rows that are neighbours are copied together, but rows of two blocks are not neighbours on
// the device.
constexpr size_t kGapBytes = 1;

}  // namespace

size_t StagingGrowth::Take(size_t bytes_min, size_t bytes_max) {
  uint64_t left = bytes_left_.load(std::memory_order_relaxed);
  for (;;) {
    if (left < bytes_min) return 0;
    const size_t bytes = std::min<uint64_t>(left, std::max(bytes_min, bytes_max));
    if (bytes_left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed))
      return bytes;
  }
}

absl::Status CallStaging::Create(size_t bytes, StagingGrowth* growth) {
  growth_ = growth;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device_), "a call's staging"));
  HPS_ASSIGN_OR_RETURN(stream_, MakeStream(StreamPriority::kHigh));
  HPS_ASSIGN_OR_RETURN(copied_, MakeEvent());
  if (bytes == 0) return absl::OkStatus();
  Block block;
  HPS_ASSIGN_OR_RETURN(block.pinned, MakePinnedBuffer("a call's staging", bytes + kGapBytes));
  HPS_ASSIGN_OR_RETURN(block.device, MakeDeviceBuffer("a call's staging", bytes));
  blocks_.push_back(std::move(block));
  return absl::OkStatus();
}

void CallStaging::Reset() {
  for (Block& block : blocks_) block.used_bytes = 0;
  copies_ = Copies::kNone;
}

std::byte* CallStaging::Take(size_t bytes) {
  const auto has_room = [&](const Block& block) {
    return block.device.bytes() - block.used_bytes >= bytes;
  };
  auto block = std::find_if(blocks_.begin(), blocks_.end(), has_room);
  if (block == blocks_.end()) {
    if (!Grow(bytes)) return nullptr;
    block = blocks_.end() - 1;
  }
  std::byte* const room = block->pinned.data() + block->used_bytes;
  block->used_bytes += bytes;
  return room;
}

// The device's part is allocated in the order of the copies that fill it, so that nothing waits.
bool CallStaging::Grow(size_t bytes_min) {
  if (growth_ == nullptr) return false;
  const size_t bytes = growth_->Take(RoundUp(bytes_min, kDeviceAlignment), this->bytes());
  if (bytes == 0) return false;
  const DeviceScope scope(device_);
  auto pinned = MakePinnedBuffer("more of a call's staging", bytes + kGapBytes);
  auto device = pinned.ok()
                    ? MakeDeviceBufferInOrder("more of a call's staging", bytes, stream_.get())
                    : absl::StatusOr<DeviceBuffer>(pinned.status());
  if (!device.ok()) {
    // Where the system or the device has no memory, trying again would take long each time.
    growth_ = nullptr;
    LogWarning(
        "level 1 has no memory for the missing rows of large lookups, which are slower now: " +
        std::string(device.status().message()));
    return false;
  }
  blocks_.push_back({.pinned = *std::move(pinned), .device = *std::move(device)});
  return true;
}

std::byte* CallStaging::DeviceOf(const std::byte* row) const {
  for (const Block& block : blocks_) {
    const std::byte* const begin = block.pinned.data();
    if (row >= begin && row < begin + block.device.bytes())
      return block.device.data() + (row - begin);
  }
  return nullptr;
}

bool CallStaging::Holds(const HostRows& rows) const {
  return rows.row_count > 0 && rows.stride_bytes == rows.row_bytes &&
         DeviceOf(rows.data) != nullptr;
}

absl::Status CallStaging::CopyAhead(const HostRows& rows) {
  HPS_CHECK(Holds(rows));
  copies_ = Copies::kStarted;
  return CudaStatus(cudaMemcpyAsync(DeviceOf(rows.data), rows.data, rows.row_count * rows.row_bytes,
                                    cudaMemcpyHostToDevice, stream_.get()),
                    "copy of rows ahead");
}

absl::Status CallStaging::RecordCopies() {
  if (copies_ != Copies::kStarted) return absl::OkStatus();
  copies_ = Copies::kRecorded;
  const DeviceScope scope(device_);
  return CudaStatus(cudaEventRecord(copied_.get(), stream_.get()), "rows ahead");
}

absl::Status CallStaging::AwaitCopies(cudaStream_t stream) {
  HPS_RETURN_IF_ERROR(RecordCopies());
  return CudaStatus(cudaStreamWaitEvent(stream, copied_.get()), "rows ahead");
}

size_t CallStaging::bytes() const {
  size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.device.bytes();
  return bytes;
}

}  // namespace hps
