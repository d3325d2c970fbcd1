// Writes the pieces of a page file in a thread of its own: the next piece is filled while the one
// before goes to the system and to the disk.
//
// One piece is written at a time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/executor.h"
#include "l3_pages/page_file_handle.h"

namespace hps {

class PageWriteBehind final : private Task {
 public:
  // `file` must outlive it. Without a thread, if none can be started: Begin then writes itself.
  explicit PageWriteBehind(const PageFileHandle& file);
  PageWriteBehind(const PageWriteBehind&) = delete;
  PageWriteBehind& operator=(const PageWriteBehind&) = delete;
  // Waits for the piece that is being written.
  ~PageWriteBehind() override = default;

  // Begins to write; `bytes` must live until Wait returns. REQUIRES: Wait has returned since the
  // last call. Pieces follow each other in the file.
  void Begin(uint64_t offset, std::span<const std::byte> bytes);
  // Waits until the piece is written. OK if there is none. Errors: those of
  // PageFileHandle::WriteAt.
  absl::Status Wait();

 private:
  void Run() override;

  const PageFileHandle& file_;
  Latch written_;
  uint64_t offset_ = 0;  // of the piece, which only the thread uses until written_ opens
  std::span<const std::byte> bytes_{};
  absl::Status status_;
  uint64_t sync_begun_ = 0;               // up to here the disk was asked to write
  std::unique_ptr<WorkerPool> worker_{};  // destroyed first; null: there is no thread
};

}  // namespace hps
