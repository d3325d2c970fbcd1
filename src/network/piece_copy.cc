#include "network/piece_copy.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/macros.h"
#include "base/spin.h"

namespace hps {
namespace {

// A helper that takes longer for its last chunk may have lost its core.
constexpr Duration kHelperSpin = std::chrono::microseconds(500);

}  // namespace

absl::Status PieceCopy::Run(std::span<const Piece> pieces, std::byte* to, Send send) {
  Place(pieces, to);
  if (teams_ != nullptr && bytes_ >= kHelpedBytes) return RunWithHelpers(send);
  for (size_t chunk = 0; chunk < chunk_count_; ++chunk) {
    RunPiece(chunk);
    HPS_RETURN_IF_ERROR(SendChunks(chunk, chunk + 1, send));
  }
  return absl::OkStatus();
}

void PieceCopy::Place(std::span<const Piece> pieces, std::byte* to) {
  pieces_ = pieces;
  to_ = to;
  begins_.clear();
  bytes_ = 0;
  for (const Piece& piece : pieces) {
    begins_.push_back(bytes_);
    bytes_ += piece.size();
  }
  chunk_count_ = (bytes_ + kChunkBytes - 1) / kChunkBytes;
  if (chunk_count_ > done_capacity_) {
    are_done_ = std::make_unique<std::atomic<bool>[]>(chunk_count_);
    done_capacity_ = chunk_count_;
  }
  for (size_t chunk = 0; chunk < chunk_count_; ++chunk)
    are_done_[chunk].store(false, std::memory_order_relaxed);
}

void PieceCopy::RunPiece(size_t chunk) {
  const size_t end = std::min((chunk + 1) * kChunkBytes, bytes_);
  size_t next = chunk * kChunkBytes;
  // The last piece that begins there or before; of pieces without bytes, the last one.
  auto number = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), next) -
                                    begins_.begin() - 1);
  for (; next < end; ++number) {
    const size_t skipped = next - begins_[number];
    const size_t count = std::min(pieces_[number].size() - skipped, end - next);
    if (count > 0) std::memcpy(to_ + next, pieces_[number].data() + skipped, count);
    next += count;
  }
  are_done_[chunk].store(true, std::memory_order_release);
}

absl::Status PieceCopy::SendChunks(size_t begin, size_t end, Send send) const {
  return send(begin * kChunkBytes, std::min(end * kChunkBytes, bytes_));
}

absl::Status PieceCopy::RunWithHelpers(Send send) {
  const ForkJoinLease team = teams_->Acquire();
  const auto close = [](ForkJoinTeam* of) { of->Close(); };  // also if `send` throws
  const std::unique_ptr<ForkJoinTeam, decltype(close)> closed(team.get(), close);
  team->Call(team->helpers_max());
  team->Open(*this);
  team->Publish(chunk_count_);
  absl::Status sent;
  SpinLimit limit(kHelperSpin);
  for (size_t begin = 0; begin < chunk_count_ && sent.ok();) {
    const bool has_copied = team->RunOne();
    size_t end = begin;
    while (end < chunk_count_ && are_done_[end].load(std::memory_order_acquire)) ++end;
    if (end > begin) {
      sent = SendChunks(begin, end, send);
    } else if (!has_copied) {
      if (!limit.Spin()) std::this_thread::yield();  // a helper copies
    }
    begin = end;
  }
  return sent;
}

}  // namespace hps
