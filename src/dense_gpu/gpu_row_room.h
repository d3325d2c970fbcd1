// Room for the rows of a batch on a GPU, and the stream on which they are looked up and read.
//
// Not thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "base/clock.h"
#include "dense/device_rows.h"
#include "l1_gpu/cuda_resources.h"

namespace hps {

class GpuRowRoom final : public RowRoom {
 public:
  // `budget`: of the rows in all rooms of the device; null: they take what there is.
  // Errors: UNAVAILABLE (no such device), INTERNAL.
  static absl::StatusOr<std::unique_ptr<GpuRowRoom>> Create(int device,
                                                            std::shared_ptr<ByteBudget> budget);
  // Leaks the memory of a device that hangs: to free it would wait for ever.
  ~GpuRowRoom() override;

  Stream stream() const override { return {stream_.get()}; }
  absl::StatusOr<Room> Make(std::span<const KeyPiece> pieces, uint64_t row_bytes) override;
  absl::Status ReadStatuses(std::span<KeyStatus> to) override;

  // Waits until the stream has passed all its work. `what` names it in the message. Errors:
  // DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL.
  absl::Status WaitUntilIdle(Duration timeout, const char* what);

 private:
  GpuRowRoom(int device, std::shared_ptr<ByteBudget> budget)
      : device_(device), budget_(std::move(budget)) {}
  absl::Status SetUp();
  absl::Status GrowRows(uint64_t row_bytes);
  absl::Status SendKeys(std::span<const KeyPiece> pieces);

  const int device_;
  const std::shared_ptr<ByteBudget> budget_;
  std::optional<ByteBudget::Lease> lease_;  // for rows_
  CudaStream stream_;
  CudaEvent passed_;
  PinnedBuffer host_;  // keys on their way to the device, or statuses on theirs to the host
  DeviceBuffer keys_;  // and statuses
  DeviceBuffer rows_;
};

// Makes a buffer large enough, for later work on `stream`; what it held is gone where it was not.
// Memory of a batch that was much larger than this one is given back. Errors: RESOURCE_EXHAUSTED,
// INTERNAL.
absl::Status GrowDeviceBuffer(DeviceBuffer& buffer, const char* what, uint64_t bytes,
                              cudaStream_t stream);
// The same of pinned memory. REQUIRES: no work uses it any more.
absl::Status GrowPinnedBuffer(PinnedBuffer& buffer, const char* what, uint64_t bytes);

}  // namespace hps
