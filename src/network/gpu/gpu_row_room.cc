#include "network/gpu/gpu_row_room.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"

namespace hps {
namespace {

// A device that works has long passed what a slot gave it before.
constexpr Duration kEarlierWorkMax = std::chrono::milliseconds(100);
constexpr Duration kStatusesMax = std::chrono::seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRowRoom>> GpuRowRoom::Create(const DeviceDenseOptions& options,
                                                               ForkJoinPool* copy_teams) {
  const DeviceScope scope(options.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  std::unique_ptr<GpuRowRoom> room(new GpuRowRoom(options, copy_teams));
  HPS_RETURN_IF_ERROR(room->SetUp());
  return room;
}

absl::Status GpuRowRoom::SetUp() {
  HPS_ASSIGN_OR_RETURN(stream_, MakeStream(StreamPriority::kHigh));
  // The lookup of a part, on which the next part waits, goes before the network.
  HPS_ASSIGN_OR_RETURN(network_stream_, MakeStream(StreamPriority::kLow));
  HPS_ASSIGN_OR_RETURN(passed_, MakeEvent());
  HPS_ASSIGN_OR_RETURN(network_passed_, MakeEvent());
  if (options_.row_budget != nullptr) {
    HPS_ASSIGN_OR_RETURN(ByteBudget::Lease lease, options_.row_budget->Lend(options_.row_bytes));
    lease_.emplace(std::move(lease));
  }
  HPS_ASSIGN_OR_RETURN(rows_, MakeDeviceBuffer("rows of a batch", options_.row_bytes));
  HPS_ASSIGN_OR_RETURN(keys_, MakeDeviceBuffer("keys of a batch", StatusesAt() + keys_max()));
  HPS_ASSIGN_OR_RETURN(host_, MakePinnedBuffer("keys of a batch", keys_max() * sizeof(Key)));
  return absl::OkStatus();
}

// Behind the keys, whose 8 bytes each are a multiple of theirs.
uint64_t GpuRowRoom::StatusesAt() const { return (keys_max() * sizeof(Key) + 255) / 256 * 256; }

GpuRowRoom::~GpuRowRoom() {
  if (network_passed_ == nullptr) return;  // the set-up failed
  const DeviceScope scope(options_.device);
  if (absl::IsDeadlineExceeded(WaitUntilIdle(kStatusesMax, "earlier work"))) {
    host_.Leak();
    keys_.Leak();
    rows_.Leak();
    if (lease_.has_value()) lease_->Leak();
  }
  host_ = PinnedBuffer();
  keys_ = DeviceBuffer();
  rows_ = DeviceBuffer();
}

absl::StatusOr<cudaStream_t> GpuRowRoom::NetworkStream() {
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(passed_.get(), stream_.get()), "a part's rows"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamWaitEvent(network_stream_.get(), passed_.get(), 0), "a part's rows"));
  network_is_joined_ = false;
  return network_stream_.get();
}

absl::Status GpuRowRoom::JoinNetworkStream() {
  if (network_is_joined_) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaEventRecord(network_passed_.get(), network_stream_.get()), "a part's run"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamWaitEvent(stream_.get(), network_passed_.get(), 0), "a part's run"));
  network_is_joined_ = true;
  return absl::OkStatus();
}

absl::Status GpuRowRoom::WaitUntilIdle(Duration timeout, const char* what) {
  HPS_RETURN_IF_ERROR(JoinNetworkStream());
  return WaitForStream(timeout, what);
}

absl::Status GpuRowRoom::WaitForStream(Duration timeout, const char* what) {
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(passed_.get(), stream_.get()), what));
  return WaitFor(passed_.get(), DeadlineAfter(RealClock(), timeout), what);
}

absl::Status GpuRowRoom::CheckFits(std::span<const KeyPiece> pieces, uint64_t row_bytes,
                                   uint64_t row_bytes_max) const {
  uint64_t key_count = 0;
  for (const KeyPiece& piece : pieces) key_count += piece.key_count;
  if (key_count <= keys_max() && row_bytes <= row_bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(key_count, " keys with rows of ", row_bytes,
                                                   " bytes; on the device a batch, or "
                                                   "a part of it, has room for ",
                                                   keys_max(), " keys and ", row_bytes_max,
                                                   " bytes"));
}

absl::StatusOr<RowRoom::Room> GpuRowRoom::Make(std::span<const KeyPiece> pieces,
                                               uint64_t row_bytes) {
  HPS_RETURN_IF_ERROR(CheckFits(pieces, row_bytes, this->row_bytes()));
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(WaitUntilIdle(kEarlierWorkMax, "earlier work on rows"));
  return MakeAt(0, pieces);
}

absl::StatusOr<RowRoom::Room> GpuRowRoom::MakePart(std::span<const KeyPiece> pieces,
                                                   uint64_t row_bytes, size_t part) {
  HPS_RETURN_IF_ERROR(CheckFits(pieces, row_bytes, part_row_bytes()));
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(WaitForStream(kEarlierWorkMax, "earlier work on rows"));
  return MakeAt(part % kPartsMax * part_row_bytes(), pieces);
}

absl::StatusOr<RowRoom::Room> GpuRowRoom::MakeAt(uint64_t rows_at,
                                                 std::span<const KeyPiece> pieces) {
  key_pieces_.clear();
  for (const KeyPiece& piece : pieces)
    key_pieces_.emplace_back(piece.keys, piece.key_count * sizeof(Key));
  HPS_RETURN_IF_ERROR(key_copy_.Run(key_pieces_, host_.data(), [this](size_t begin, size_t end) {
    return CudaStatus(cudaMemcpyAsync(keys_.data() + begin, host_.data() + begin, end - begin,
                                      cudaMemcpyHostToDevice, stream_.get()),
                      "copy of a batch's keys");
  }));
  return Room{.keys = keys_.at<const Key>(0),
              .rows = rows_.data() + rows_at,
              .statuses = keys_.at<KeyStatus>(StatusesAt())};
}

absl::Status GpuRowRoom::ReadStatuses(std::span<KeyStatus> to) {
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  // The keys have left this memory: their lookup has returned.
  HPS_CHECK(to.size() <= keys_max());
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(host_.data(), keys_.data() + StatusesAt(),
                                                 to.size(), cudaMemcpyDeviceToHost, stream_.get()),
                                 "copy of a batch's statuses"));
  HPS_RETURN_IF_ERROR(WaitUntilIdle(kStatusesMax, "a batch's statuses"));
  std::memcpy(to.data(), host_.data(), to.size());
  return absl::OkStatus();
}

}  // namespace hps
