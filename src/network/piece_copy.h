// Copies pieces of memory, one after the other, to where a device fetches them.
//
// One core uses a fraction of the memory's bandwidth, so the threads of a team help with large
// copies. The caller is told of finished bytes while the rest is still being copied.
//
// For one thread at a time; keeps its memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/fork_join_team.h"

namespace hps {

class PieceCopy final : private ForkJoinTeam::Work {
 public:
  using Piece = std::span<const std::byte>;
  // Bytes [begin, end) of the destination have been copied.
  using Send = absl::FunctionRef<absl::Status(size_t begin, size_t end)>;

  // What one thread copies at a time, and the least that is sent.
  static constexpr size_t kChunkBytes = size_t{256} << 10;
  // Smaller copies end before a helper is awake.
  static constexpr size_t kHelpedBytes = 4 * kChunkBytes;

  // `teams`: borrowed; null = no helpers.
  explicit PieceCopy(ForkJoinPool* teams) : teams_(teams) {}

  // Copies all pieces to `to`, and calls `send` on this thread for all of it, in ascending order.
  // When it returns, nobody reads the pieces or writes to `to`. Errors: the first of `send`, which
  // is not called again then. Throws std::bad_alloc.
  absl::Status Run(std::span<const Piece> pieces, std::byte* to, Send send);

 private:
  void Place(std::span<const Piece> pieces, std::byte* to);
  void RunPiece(size_t chunk) override;
  absl::Status SendChunks(size_t begin, size_t end, Send send) const;
  absl::Status RunWithHelpers(Send send);

  ForkJoinPool* const teams_;
  std::span<const Piece> pieces_;
  std::vector<size_t> begins_;  // by piece, in the destination
  std::byte* to_ = nullptr;
  size_t bytes_ = 0;
  size_t chunk_count_ = 0;
  std::unique_ptr<std::atomic<bool>[]> are_done_;  // by chunk
  size_t done_capacity_ = 0;
};

}  // namespace hps
