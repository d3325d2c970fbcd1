// Room for the rows of a batch on a GPU, and the stream on which they are looked up and read; for
// batches in parts, a second stream on which they are read.
//
// Not thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "dense/device_rows.h"
#include "dense/piece_copy.h"
#include "l1_gpu/cuda_resources.h"

namespace hps {

class GpuRowRoom final : public RowRoom {
 public:
  // `budget`: of the rows in all rooms of the device; null: they take what there is. `copy_teams`:
  // borrowed; helpers that copy keys; null = none. Errors: UNAVAILABLE (no such device), INTERNAL.
  static absl::StatusOr<std::unique_ptr<GpuRowRoom>> Create(int device,
                                                            std::shared_ptr<ByteBudget> budget,
                                                            ForkJoinPool* copy_teams);
  // Leaks the memory of a device that hangs: to free it would wait for ever.
  ~GpuRowRoom() override;

  Stream stream() const override { return {stream_.get()}; }
  absl::StatusOr<Room> Make(std::span<const KeyPiece> pieces, uint64_t row_bytes) override;
  absl::StatusOr<Room> MakePart(std::span<const KeyPiece> pieces, uint64_t row_bytes,
                                size_t part) override;
  absl::Status ReadStatuses(std::span<KeyStatus> to) override;

  // The stream on which the network reads rows of parts. What is enqueued on it from here on waits
  // for the work that is on stream() now. Errors: INTERNAL.
  absl::StatusOr<cudaStream_t> NetworkStream();

  // Waits until both streams have passed all their work. `what` names it in the message. Errors:
  // DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL.
  absl::Status WaitUntilIdle(Duration timeout, const char* what);

 private:
  GpuRowRoom(int device, std::shared_ptr<ByteBudget> budget, ForkJoinPool* copy_teams)
      : device_(device), budget_(std::move(budget)), key_copy_(copy_teams) {}
  struct Rows {
    DeviceBuffer buffer;
    std::optional<ByteBudget::Lease> lease;
  };

  absl::Status SetUp();
  absl::Status JoinNetworkStream();
  absl::Status WaitForStream(Duration timeout, const char* what);
  absl::StatusOr<Room> MakeIn(Rows& rows, std::span<const KeyPiece> pieces, uint64_t row_bytes);
  absl::Status FreeRows(Rows& rows);
  absl::Status GrowRows(Rows& rows, uint64_t row_bytes);
  absl::Status SendKeys(std::span<const KeyPiece> pieces);

  const int device_;
  const std::shared_ptr<ByteBudget> budget_;
  CudaStream stream_;
  CudaStream network_stream_;
  CudaEvent passed_;               // by stream_
  CudaEvent network_passed_;       // by network_stream_
  bool network_is_joined_ = true;  // stream_ waits for all that is on network_stream_
  PieceCopy key_copy_;
  std::vector<PieceCopy::Piece> key_pieces_;
  PinnedBuffer host_;  // keys on their way to the device, or statuses on theirs to the host
  DeviceBuffer keys_;  // and statuses
  std::array<Rows, kPartsMax> rows_;  // of a whole batch: the first
};

// Makes a buffer large enough, for later work on `stream`; what it held is gone where it was not.
// Memory of a batch that was much larger than this one is given back. Errors: RESOURCE_EXHAUSTED,
// INTERNAL.
absl::Status GrowDeviceBuffer(DeviceBuffer& buffer, const char* what, uint64_t bytes,
                              cudaStream_t stream);
// The same of pinned memory. REQUIRES: no work uses it any more.
absl::Status GrowPinnedBuffer(PinnedBuffer& buffer, const char* what, uint64_t bytes);

}  // namespace hps
