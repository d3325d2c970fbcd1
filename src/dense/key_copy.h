// Copies the keys of a batch from its requests to one place in the host's memory, from where a
// device reads them.
//
// One thread copies about 10 GB/s, a fifth of what PCIe 5 takes. So up to three idle threads help
// with a large batch; all copies of the process share them. The caller sends what has been copied
// while the rest is copied.
//
// For one thread at a time. After warm-up it allocates only for batches that are larger than those
// before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/fork_join_team.h"
#include "dense/device_rows.h"

namespace hps {

class KeyCopyHelpers;

class KeyCopy final : private ForkJoinTeam::Work {
 public:
  // Larger batches are copied with helpers.
  static constexpr size_t kAloneBytesMax = size_t{1} << 20;

  KeyCopy();
  KeyCopy(const KeyCopy&) = delete;
  KeyCopy& operator=(const KeyCopy&) = delete;

  // Copies the pieces one after the other to `to`, which has their size. Calls, on this thread,
  // absl::Status send(std::span<const std::byte> copied) for each next part of `to` that is
  // complete. After an error it sends no more. When it returns, no thread uses the memory.
  // Errors: the first of `send`.
  template <typename Send>
  absl::Status Run(std::span<const KeyPiece> pieces, std::span<std::byte> to, const Send& send) {
    absl::Status status;
    Begin(pieces, to);
    for (std::span<const std::byte> next = Next(); !next.empty(); next = Next())
      if (status.ok()) status = send(next);
    return status;
  }

 private:
  static constexpr size_t kPartBytes = size_t{256} << 10;

  void Begin(std::span<const KeyPiece> pieces, std::span<std::byte> to);
  std::span<const std::byte> Next();
  bool CopyOne();
  void RunPiece(size_t part) override;

  const std::shared_ptr<KeyCopyHelpers> helpers_;  // null: there are none
  const ForkJoinLease team_;                       // likewise
  std::span<const KeyPiece> pieces_;
  std::span<std::byte> to_;
  std::vector<size_t> piece_ends_;  // in `to_`, in bytes
  size_t part_count_ = 0;
  size_t returned_count_ = 0;                       // parts that Next has returned
  size_t next_part_ = 0;                            // of a batch that is copied alone
  bool is_helped_ = false;                          // with the present batch
  std::unique_ptr<std::atomic<bool>[]> is_copied_;  // by part
  size_t parts_max_ = 0;                            // of is_copied_
};

}  // namespace hps
