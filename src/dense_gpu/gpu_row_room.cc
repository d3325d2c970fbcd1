#include "dense_gpu/gpu_row_room.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l1_gpu/cuda_status.h"

namespace hps {
namespace {

// A device that works has long passed what a slot gave it before.
constexpr Duration kEarlierWorkMax = std::chrono::milliseconds(100);
constexpr Duration kStatusesMax = std::chrono::seconds(1);

constexpr uint64_t kBufferBytesMin = uint64_t{64} << 10;
// A buffer of more is given back when a batch takes a quarter of it or less.
constexpr uint64_t kBufferBytesKept = uint64_t{64} << 20;

bool Suits(uint64_t has, uint64_t wanted) {
  return has >= wanted && (has <= kBufferBytesKept || wanted > has / 4);
}

uint64_t SizeFor(uint64_t wanted) { return std::bit_ceil(std::max(wanted, kBufferBytesMin)); }

}  // namespace

absl::Status GrowDeviceBuffer(DeviceBuffer& buffer, const char* what, uint64_t bytes,
                              cudaStream_t stream) {
  if (bytes == 0 || Suits(buffer.bytes(), bytes)) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FreeInOrder(std::exchange(buffer, DeviceBuffer()), stream));
  HPS_ASSIGN_OR_RETURN(buffer, MakeDeviceBufferInOrder(what, SizeFor(bytes), stream));
  return absl::OkStatus();
}

absl::Status GrowPinnedBuffer(PinnedBuffer& buffer, const char* what, uint64_t bytes) {
  if (bytes == 0 || Suits(buffer.bytes(), bytes)) return absl::OkStatus();
  buffer = PinnedBuffer();
  HPS_ASSIGN_OR_RETURN(buffer, MakePinnedBuffer(what, SizeFor(bytes)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GpuRowRoom>> GpuRowRoom::Create(int device,
                                                               std::shared_ptr<ByteBudget> budget,
                                                               ForkJoinPool* copy_teams) {
  const DeviceScope scope(device);
  HPS_RETURN_IF_ERROR(scope.Check());
  std::unique_ptr<GpuRowRoom> room(new GpuRowRoom(device, std::move(budget), copy_teams));
  HPS_RETURN_IF_ERROR(room->SetUp());
  return room;
}

absl::Status GpuRowRoom::SetUp() {
  HPS_ASSIGN_OR_RETURN(stream_, MakeStream(StreamPriority::kHigh));
  // The lookup of a part, on which the next part waits, goes before the network.
  HPS_ASSIGN_OR_RETURN(network_stream_, MakeStream(StreamPriority::kLow));
  HPS_ASSIGN_OR_RETURN(passed_, MakeEvent());
  HPS_ASSIGN_OR_RETURN(network_passed_, MakeEvent());
  return absl::OkStatus();
}

GpuRowRoom::~GpuRowRoom() {
  if (network_passed_ == nullptr) return;  // the set-up failed
  const DeviceScope scope(device_);
  if (absl::IsDeadlineExceeded(WaitUntilIdle(kStatusesMax, "earlier work"))) {
    host_.Leak();
    keys_.Leak();
    for (Rows& rows : rows_) {
      rows.buffer.Leak();
      if (rows.lease.has_value()) rows.lease->Leak();
    }
  }
  host_ = PinnedBuffer();
  keys_ = DeviceBuffer();
  for (Rows& rows : rows_) rows.buffer = DeviceBuffer();
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

absl::Status GpuRowRoom::FreeRows(Rows& rows) {
  HPS_RETURN_IF_ERROR(FreeInOrder(std::exchange(rows.buffer, DeviceBuffer()), stream_.get()));
  rows.lease.reset();
  return absl::OkStatus();
}

// The memory of an earlier batch goes back before more is asked for, and so does its part of the
// budget.
absl::Status GpuRowRoom::GrowRows(Rows& rows, uint64_t row_bytes) {
  if (row_bytes == 0 || Suits(rows.buffer.bytes(), row_bytes)) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FreeRows(rows));
  if (budget_ != nullptr) {
    HPS_ASSIGN_OR_RETURN(ByteBudget::Lease lease, budget_->Lend(SizeFor(row_bytes)));
    rows.lease.emplace(std::move(lease));
  }
  return GrowDeviceBuffer(rows.buffer, "rows of a batch", row_bytes, stream_.get());
}

absl::StatusOr<RowRoom::Room> GpuRowRoom::Make(std::span<const KeyPiece> pieces,
                                               uint64_t row_bytes) {
  const DeviceScope scope(device_);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(WaitUntilIdle(kEarlierWorkMax, "earlier work on rows"));
  // Large memory of a batch in parts.
  for (size_t i = 1; i < rows_.size(); ++i)
    if (rows_[i].buffer.bytes() > kBufferBytesKept) HPS_RETURN_IF_ERROR(FreeRows(rows_[i]));
  return MakeIn(rows_.front(), pieces, row_bytes);
}

absl::StatusOr<RowRoom::Room> GpuRowRoom::MakePart(std::span<const KeyPiece> pieces,
                                                   uint64_t row_bytes, size_t part) {
  const DeviceScope scope(device_);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(WaitForStream(kEarlierWorkMax, "earlier work on rows"));
  return MakeIn(rows_[part % kPartsMax], pieces, row_bytes);
}

absl::StatusOr<RowRoom::Room> GpuRowRoom::MakeIn(Rows& rows, std::span<const KeyPiece> pieces,
                                                 uint64_t row_bytes) {
  if (row_bytes > kRowBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "rows of ", row_bytes, " bytes; a batch has room for ", kRowBytesMax, " on the device"));
  }
  size_t key_count = 0;
  for (const KeyPiece& piece : pieces) key_count += piece.key_count;
  const uint64_t key_bytes = key_count * sizeof(Key);
  HPS_RETURN_IF_ERROR(GrowPinnedBuffer(host_, "keys of a batch", key_bytes));
  // The statuses lie behind the keys, whose 8 bytes each are a multiple of theirs.
  const uint64_t statuses_at = (key_bytes + 255) / 256 * 256;
  HPS_RETURN_IF_ERROR(
      GrowDeviceBuffer(keys_, "keys of a batch", statuses_at + key_count, stream_.get()));
  HPS_RETURN_IF_ERROR(GrowRows(rows, row_bytes));
  HPS_RETURN_IF_ERROR(SendKeys(pieces));
  return Room{.keys = keys_.at<const Key>(0),
              .rows = rows.buffer.data(),
              .statuses = keys_.at<KeyStatus>(statuses_at)};
}

absl::Status GpuRowRoom::SendKeys(std::span<const KeyPiece> pieces) {
  key_pieces_.clear();
  for (const KeyPiece& piece : pieces)
    key_pieces_.emplace_back(piece.keys, piece.key_count * sizeof(Key));
  return key_copy_.Run(key_pieces_, host_.data(), [this](size_t begin, size_t end) {
    return CudaStatus(cudaMemcpyAsync(keys_.data() + begin, host_.data() + begin, end - begin,
                                      cudaMemcpyHostToDevice, stream_.get()),
                      "copy of a batch's keys");
  });
}

absl::Status GpuRowRoom::ReadStatuses(std::span<KeyStatus> to) {
  const DeviceScope scope(device_);
  HPS_RETURN_IF_ERROR(scope.Check());
  // The keys have left this memory: their lookup has returned.
  HPS_CHECK(to.size() * sizeof(Key) <= host_.bytes());
  const uint64_t statuses_at = (to.size() * sizeof(Key) + 255) / 256 * 256;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(host_.data(), keys_.data() + statuses_at,
                                                 to.size(), cudaMemcpyDeviceToHost, stream_.get()),
                                 "copy of a batch's statuses"));
  HPS_RETURN_IF_ERROR(WaitUntilIdle(kStatusesMax, "a batch's statuses"));
  std::memcpy(to.data(), host_.data(), to.size());
  return absl::OkStatus();
}

}  // namespace hps
