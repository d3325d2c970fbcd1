// Room for the rows of a batch on a GPU, and the stream on which they are looked up and read; for
// batches in parts, a second stream on which they are read. All of it is made by Create.
//
// Not thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "gpu/cuda_resources.h"
#include "network/dense_network.h"
#include "network/device_rows.h"
#include "network/piece_copy.h"

namespace hps {

class GpuRowRoom final : public RowRoom {
 public:
  // Of the options, takes the device, keys_max, row_bytes and row_budget. `copy_teams`: borrowed;
  // helpers that copy keys; null = none. Errors: RESOURCE_EXHAUSTED (no memory, or none left in the
  // budget), UNAVAILABLE (no such device), INTERNAL.
  static absl::StatusOr<std::unique_ptr<GpuRowRoom>> Create(const DeviceDenseOptions& options,
                                                            ForkJoinPool* copy_teams);
  // Leaks the memory of a device that hangs: to free it would wait for ever.
  ~GpuRowRoom() override;

  uint64_t keys_max() const override { return options_.keys_max; }
  uint64_t row_bytes() const override { return options_.row_bytes; }
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
  GpuRowRoom(const DeviceDenseOptions& options, ForkJoinPool* copy_teams)
      : options_(options), key_copy_(copy_teams) {}

  absl::Status SetUp();
  absl::Status JoinNetworkStream();
  absl::Status WaitForStream(Duration timeout, const char* what);
  absl::Status CheckFits(std::span<const KeyPiece> pieces, uint64_t row_bytes,
                         uint64_t row_bytes_max) const;
  absl::StatusOr<Room> MakeAt(uint64_t rows_at, std::span<const KeyPiece> pieces);
  uint64_t StatusesAt() const;

  const DeviceDenseOptions options_;
  CudaStream stream_;
  CudaStream network_stream_;
  CudaEvent passed_;               // by stream_
  CudaEvent network_passed_;       // by network_stream_
  bool network_is_joined_ = true;  // stream_ waits for all that is on network_stream_
  PieceCopy key_copy_;
  std::vector<PieceCopy::Piece> key_pieces_;
  PinnedBuffer host_;  // keys on their way to the device, or statuses on theirs to the host
  DeviceBuffer keys_;  // and statuses
  DeviceBuffer rows_;
  std::optional<ByteBudget::Lease> lease_;  // of rows_
};

}  // namespace hps
