// Sends answers for the misses of a call to their positions on the device.
//
// Statuses, default rows and rows that don't lie in the call's staging are packed into one half of
// pinned memory; rows in staging are brought ahead of their answers, or read by the device where
// they are. One launch per half, and one copy where anything is packed: while it is under way the
// other half is filled. Asynchronous, but for a third half, which waits for the first.
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

class PieceSender {
 public:
  // All memory is reserved here. `buffers` outlives the sender.
  explicit PieceSender(CallBuffers& buffers);

  // Forgets the last lookup; this one is on `stream`.
  void Begin(cudaStream_t stream);
  // By when a half has to be free; none at first.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }

  // A piece that has been checked, of a query as the probe's launch was given it.
  struct Piece {
    const QueryView* view = nullptr;
    const DeviceCacheQuery* query = nullptr;
    uint32_t duplicate_count = 0;
    const DeviceRowPiece* piece = nullptr;
  };
  absl::Status Add(const Piece& piece);

  // Starts the copy of rows in staging to the device's. REQUIRES: they lie there.
  absl::Status Bring(const HostRows& rows);
  // Whether that was done since Begin.
  bool brought() const { return brought_; }
  // Has the call's event stand behind everything that was brought, once for many rows. Errors:
  // INTERNAL.
  absl::Status RecordBrought();

  // Launches what was added since the last Send.
  absl::Status Send();

  // Something was launched, or tried to, since Begin.
  bool sent() const { return sent_; }
  // A piece asked to probe again: its positions are counted on the device, in the call's
  // pinned_counts when the stream has passed it.
  bool probed_again() const { return probed_again_; }

 private:
  // Keys `first` to `first + count` of a piece, without long gaps.
  struct Run {
    size_t first = 0;
    size_t count = 0;
    bool takes_rows = false;         // a status that takes its row
    bool takes_default = false;      // or the default row
    KeyStatus status = kUnanswered;  // of all keys, where they have the same
  };
  static Run NextRun(const DeviceRowPiece& piece, size_t from, size_t count_max);

  bool IsStaged(const HostRows& rows) const;
  // The place on the device of a row in staging.
  std::byte* BroughtPlaceOf(const std::byte* row) const {
    return buffers_.device_staging + (row - buffers_.staging);
  }
  // Whether the device reads the piece's rows from the staging itself.
  bool IsReadInPlace(const Piece& piece) const;
  // How many keys of the piece still fit into the current half.
  size_t KeysThatFit(const Piece& piece) const;
  absl::Status AddRun(const Piece& piece, const Run& run);
  absl::Status AddRows(const Piece& piece, const Run& run, ScatterPiece& scatter);
  absl::Status CountOnTheDevice(const Piece& piece, ScatterPiece& scatter);
  // Room in the current half, aligned; the same offset in its device copy.
  size_t TakeBounce(size_t bytes);
  // Room for rows in the current half's device memory, aligned.
  std::byte* TakeDeviceRows(size_t bytes);
  absl::Status UseHalf();
  absl::Status Launch();

  SendHalf& half() { return buffers_.halves[half_index_]; }

  CallBuffers& buffers_;
  cudaStream_t stream_ = nullptr;
  Deadline deadline_ = kNoDeadline;
  std::vector<ScatterPiece> pieces_;
  size_t half_index_ = 0;
  bool half_used_ = false;  // since the last Send
  size_t bounce_used_ = 0;
  size_t rows_used_ = 0;
  bool sent_ = false;
  bool brought_ = false;
  bool brought_since_event_ = false;
  bool waits_for_brought_ = false;  // what was added since the last Send
  bool probed_again_ = false;
};

}  // namespace hps
