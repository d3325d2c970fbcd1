// Sends the answers for the misses of a call to their positions on the device.
//
// Statuses, default rows and rows outside the call's staging are packed into one half of a pinned
// double buffer. Rows in staging were copied ahead of their answers, are read in place by the
// device, or are copied with the answers.
// Each half takes one launch, and one copy if anything is packed; meanwhile the other half is
// filled. Asynchronous, except that a third half waits for the first.
//
// Not thread-safe. Errors: INTERNAL, DEADLINE_EXCEEDED (the first half was not free in time).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "l1_gpu/call_buffers.h"
#include "l1_gpu/kernels/kernels.h"
#include "tier/device_cache.h"

namespace hps {

class MissRowSender {
 public:
  // Reserves all memory. `buffers` must outlive the sender.
  explicit MissRowSender(CallBuffers& buffers);

  // Starts a new lookup, on `stream`.
  void Begin(cudaStream_t stream);
  // The deadline for waiting for a half; initially none.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }

  // A checked piece, with its query as passed to the probe's launch.
  struct Piece {
    const QueryView* view = nullptr;
    const DeviceCacheQuery* query = nullptr;
    uint32_t duplicate_count = 0;
    const DeviceRowPiece* piece = nullptr;
  };
  absl::Status Add(const Piece& piece);

  // Launches the answers added since the last Send.
  absl::Status Send();

  // Whether a launch was attempted since Begin.
  bool sent() const { return sent_; }
  // Whether a piece asked for a second probe. Its positions are counted on the device, in the
  // call's counts.pinned once the stream has passed it.
  bool probed_again() const { return reprobed_; }

 private:
  // Keys `first` to `first + count` of a piece, without long gaps of unanswered keys.
  struct Run {
    size_t first = 0;
    size_t count = 0;
    bool takes_rows = false;         // some status writes its row
    bool takes_default = false;      // some status writes the default row
    KeyStatus status = kUnanswered;  // the status of all keys if they have the same one
  };
  static Run NextRun(const DeviceRowPiece& piece, size_t from, size_t count_max);

  // Whether the device reads the piece's rows directly from staging.
  bool IsReadInPlace(const Piece& piece) const;
  // How many keys of the piece still fit into the current half.
  size_t KeysThatFit(const Piece& piece) const;
  absl::Status AddRun(const Piece& piece, const Run& run);
  absl::Status AddRows(const Piece& piece, const Run& run, ScatterPiece& scatter);
  absl::Status CountOnTheDevice(const Piece& piece, ScatterPiece& scatter);
  // Allocates aligned room in the current half.
  Mirrored<std::byte> TakeBounce(size_t bytes);
  // Allocates aligned room for rows in the current half's device memory.
  std::byte* TakeDeviceRows(size_t bytes);
  absl::Status Launch();

  DoubleBufferHalf& half() { return buffers_.halves[half_index_]; }

  CallBuffers& buffers_;
  cudaStream_t stream_ = nullptr;
  Deadline deadline_ = kNoDeadline;
  std::vector<ScatterPiece> pieces_;
  size_t half_index_ = 0;
  bool half_used_ = false;  // since the last Send
  size_t bounce_used_ = 0;  // of the used half; so is rows_used_
  size_t rows_used_ = 0;
  bool sent_ = false;
  bool awaits_copies_ = false;  // the answers added since the last Send
  bool reprobed_ = false;
};

}  // namespace hps
