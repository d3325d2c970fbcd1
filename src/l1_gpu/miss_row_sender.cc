#include "l1_gpu/miss_row_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/alignment.h"
#include "l1_gpu/kernels/statuses.h"

namespace hps {
namespace {

// A run of up to this many unanswered keys is sent along: splitting would cost another copy and
// another piece of the launch for the keys after it. Not if the device probes again, because it
// would answer these keys.
constexpr size_t kGapKeysMax = 64;

// The device reads rows of a query in place while at most one in this many is read for a duplicate.
constexpr size_t kDuplicatesReadShare = 4;

}  // namespace

MissRowSender::MissRowSender(CallBuffers& buffers) : buffers_(buffers) {
  pieces_.reserve(kTablesPerCallMax);
}

void MissRowSender::Begin(cudaStream_t stream) {
  stream_ = stream;
  deadline_ = kNoDeadline;
  pieces_.clear();
  half_used_ = false;
  sent_ = reprobed_ = awaits_copies_ = false;
}

MissRowSender::Run MissRowSender::NextRun(const DeviceRowPiece& piece, size_t from,
                                          size_t count_max) {
  Run run;
  const auto& statuses = piece.statuses;
  while (from < statuses.size() && statuses[from] == kUnanswered) ++from;
  run.first = from;
  const size_t end = std::min(statuses.size(), from + count_max);
  run.status = StatusOfAll(statuses.subspan(from, end - from));
  if (run.status != kUnanswered) {
    run.count = end - from;
    (TakesRow(run.status) ? run.takes_rows : run.takes_default) = true;
    return run;
  }
  const size_t gap_keys_max = piece.reprobe ? 0 : kGapKeysMax;
  for (size_t i = from; i < end && i - (run.first + run.count) <= gap_keys_max; ++i) {
    if (statuses[i] == kUnanswered) continue;
    run.count = i + 1 - run.first;
    (TakesRow(statuses[i]) ? run.takes_rows : run.takes_default) = true;
  }
  return run;
}

// A kernel reads rows over the bus as fast as a copy transfers them, and pieces that arrive in any
// order then need no copy each. A row that many positions wait for is better copied once.
bool MissRowSender::IsReadInPlace(const Piece& piece) const {
  return buffers_.staging.Holds(piece.piece->rows) &&
         piece.duplicate_count <= piece.piece->statuses.size() / kDuplicatesReadShare;
}

size_t MissRowSender::KeysThatFit(const Piece& piece) const {
  if (pieces_.size() == pieces_.capacity()) return 0;
  const size_t row_bytes = piece.query->row_bytes;
  const bool staged = buffers_.staging.Holds(piece.piece->rows);
  const bool has_rows = piece.piece->rows.row_count > 0;
  // Statuses, the default row and rows each begin aligned.
  const size_t fixed_bytes = 3 * kRowAlignment + row_bytes;
  const size_t bounce_left = kHalfBounceBytes - bounce_used_;
  if (bounce_left < fixed_bytes) return 0;
  const size_t key_bytes = 1 + (has_rows && !staged ? row_bytes : 0);
  size_t keys = (bounce_left - fixed_bytes) / key_bytes;
  // A key may need room for two rows on the device: its staged row, and the row that a second probe
  // finds.
  const size_t device_rows = (staged && !piece.piece->on_device && !IsReadInPlace(piece) ? 1 : 0) +
                             (piece.piece->reprobe ? 1 : 0);
  if (device_rows > 0) {
    const size_t rows_left = buffers_.device_rows_bytes - rows_used_;
    const size_t usable_bytes = rows_left - std::min(rows_left, device_rows * kRowAlignment);
    keys = std::min(keys, usable_bytes / (device_rows * row_bytes));
  }
  return keys;
}

Mirrored<std::byte> MissRowSender::TakeBounce(size_t bytes) {
  const size_t begin = bounce_used_;
  bounce_used_ += RoundUp(bytes, kRowAlignment);
  return {.pinned = half().bounce.pinned + begin, .device = half().bounce.device + begin};
}

std::byte* MissRowSender::TakeDeviceRows(size_t bytes) {
  std::byte* const begin = half().device_rows + rows_used_;
  rows_used_ += RoundUp(bytes, kRowAlignment);
  return begin;
}

absl::Status MissRowSender::Add(const Piece& piece) {
  for (size_t next = 0;;) {
    if (!half_used_) {
      HPS_RETURN_IF_ERROR(WaitFor(half().done.get(), deadline_, "an answer's copy"));
      half_used_ = true;
      bounce_used_ = rows_used_ = 0;
    }
    const size_t fit = KeysThatFit(piece);
    if (fit == 0) {
      HPS_RETURN_IF_ERROR(Send());
      continue;
    }
    const Run run = NextRun(*piece.piece, next, fit);
    if (run.count == 0) return absl::OkStatus();
    HPS_RETURN_IF_ERROR(AddRun(piece, run));
    next = run.first + run.count;
  }
}

absl::Status MissRowSender::AddRun(const Piece& piece, const Run& run) {
  const DeviceRowPiece& answers = *piece.piece;
  const size_t row_bytes = piece.query->row_bytes;
  ScatterPiece scatter = {.query = *piece.view,
                          .first = static_cast<uint32_t>(answers.first + run.first),
                          .count = static_cast<uint32_t>(run.count),
                          .duplicate_count = piece.duplicate_count,
                          .status = run.status};
  // The second probe overwrites the statuses.
  if (run.status == kUnanswered || answers.reprobe) {
    const auto [pinned, device] = TakeBounce(run.count);
    std::memcpy(pinned, answers.statuses.data() + run.first, run.count);
    scatter.statuses = static_cast<KeyStatus*>(static_cast<void*>(device));
  }
  const std::span<const std::byte> default_row = piece.query->default_row;
  if (run.takes_default && !default_row.empty()) {
    const auto [pinned, device] = TakeBounce(row_bytes);
    std::memcpy(pinned, default_row.data(), row_bytes);
    scatter.default_row = device;
  }
  if (run.takes_rows) HPS_RETURN_IF_ERROR(AddRows(piece, run, scatter));
  if (answers.reprobe && piece.query->table != nullptr)
    scatter.probed = TakeDeviceRows(run.count * row_bytes);
  if (answers.reprobe) HPS_RETURN_IF_ERROR(CountOnTheDevice(piece, scatter));
  pieces_.push_back(scatter);
  return absl::OkStatus();
}

absl::Status MissRowSender::AddRows(const Piece& piece, const Run& run, ScatterPiece& scatter) {
  const DeviceRowPiece& answers = *piece.piece;
  const size_t row_bytes = piece.query->row_bytes;
  const size_t rows_bytes = run.count * row_bytes;
  if (!buffers_.staging.Holds(answers.rows)) {
    const auto [pinned, device] = TakeBounce(rows_bytes);
    for (size_t i = 0; i < run.count; ++i) {
      if (!TakesRow(answers.statuses[run.first + i])) continue;
      std::memcpy(pinned + i * row_bytes, answers.rows.row(run.first + i), row_bytes);
    }
    scatter.staged = device;
  } else if (answers.on_device) {
    scatter.staged = buffers_.staging.DeviceOf(answers.rows.row(run.first));
    awaits_copies_ = true;
  } else if (IsReadInPlace(piece)) {
    scatter.staged = answers.rows.row(run.first);
  } else {
    std::byte* const rows = TakeDeviceRows(rows_bytes);
    scatter.staged = rows;
    sent_ = true;
    HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(rows, answers.rows.row(run.first), rows_bytes,
                                                   cudaMemcpyHostToDevice, stream_),
                                   "copy of staged rows"));
  }
  return absl::OkStatus();
}

absl::Status MissRowSender::CountOnTheDevice(const Piece& piece, ScatterPiece& scatter) {
  if (!reprobed_) {
    sent_ = reprobed_ = true;
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(buffers_.counts.device, 0, kCallCountsBytes, stream_),
                   "counts of a lookup"));
  }
  scatter.counts = buffers_.counts.device + piece.piece->query * kKeyStatusCount;
  return absl::OkStatus();
}

absl::Status MissRowSender::Send() {
  absl::Status status = pieces_.empty() ? absl::OkStatus() : Launch();
  pieces_.clear();
  if (!half_used_ || !sent_) return status;
  // Also after an error: a part may be in flight and read the half.
  for (cudaEvent_t event : {half().done.get(), buffers_.last.get()})
    status = RecordAfter(status, event, stream_, "an answer");
  half_used_ = false;
  half_index_ = 1 - half_index_;
  return status;
}

absl::Status MissRowSender::Launch() {
  sent_ = true;
  if (std::exchange(awaits_copies_, false))
    HPS_RETURN_IF_ERROR(buffers_.staging.AwaitCopies(stream_));
  if (bounce_used_ > 0) {
    HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(half().bounce.device, half().bounce.pinned,
                                                   bounce_used_, cudaMemcpyHostToDevice, stream_),
                                   "copy of answers"));
  }
  HPS_RETURN_IF_ERROR(
      CudaStatus(LaunchScatter(pieces_, buffers_.misses, stream_), "the launch of a scatter"));
  if (!reprobed_) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(buffers_.counts.pinned, buffers_.counts.device,
                                    kCallCountsBytes, cudaMemcpyDeviceToHost, stream_),
                    "copy of counts");
}

}  // namespace hps
