// Writes a page file (page_format.h) from rows in ascending key order, sequentially.
//
//   auto writer = *PageFileWriter::Create(path, incarnation, row_bytes);
//   writer->Add(keys, rows, versions); ...
//   writer->Finish();  // the file and its name are durable
//
// The file has no header before Finish, so a process that ends earlier leaves nothing that could
// be taken for a page file. A thread writes one piece while the next one is filled. Not
// thread-safe. Memory: twice kPageWriteBytes, and 8 bytes per page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"
#include "hps/types.h"
#include "l3_pages/page_file_handle.h"
#include "l3_pages/page_format.h"
#include "l3_pages/page_write_behind.h"

namespace hps {

// Bytes of one write. Smaller pieces are handed to the thread so often that both wait for each
// other on a busy machine.
inline constexpr size_t kPageWriteBytes = size_t{4} << 20;

class PageFileWriter {
 public:
  // Creates the file. Errors: ALREADY_EXISTS, NOT_FOUND (no such directory), PERMISSION_DENIED,
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PageFileWriter>> Create(const std::string& path,
                                                                Incarnation incarnation,
                                                                size_t row_bytes);
  PageFileWriter(const PageFileWriter&) = delete;
  PageFileWriter& operator=(const PageFileWriter&) = delete;
  // Removes the file unless Finish has succeeded.
  ~PageFileWriter();

  // Takes memory for the index of so many rows, which Add otherwise takes as it needs it. Errors:
  // RESOURCE_EXHAUSTED (memory).
  absl::Status Reserve(uint64_t row_count);

  // Adds rows [n, row_bytes]; empty versions = all 0. Errors: INVALID_ARGUMENT (a key that is not
  // above the one before), RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the disk fails). After an
  // error the writer can only be destroyed.
  absl::Status Add(std::span<const Key> keys, HostRows rows,
                   std::span<const Version> versions = {});

  // Writes the rest and makes the file durable. Returns what it holds. Nothing can be added
  // afterwards. Errors: those of Add.
  absl::StatusOr<PageFileDescription> Finish();

 private:
  PageFileWriter(PageFileHandle file, Incarnation incarnation, size_t row_bytes,
                 AlignedBytes buffer);
  // Where the next row goes.
  std::byte* page() const { return buffer_ + buffer_used_; }
  absl::Status CheckOrder(std::span<const Key> keys);
  absl::Status CompletePage();
  absl::Status FlushBuffer();
  absl::Status AwaitPiece();
  absl::Status WriteIndex();
  absl::Status WriteHeaders();

  const PageFileHandle file_;
  const AlignedBytes memory_;  // two buffers of kPageWriteBytes
  std::byte* buffer_;          // the one that is being filled
  PageFileDescription description_;
  std::vector<Key> first_keys_;           // of the pages begun
  uint64_t file_used_ = kPageBlockBytes;  // bytes written, the header's included
  uint64_t piece_page_ = 0;               // the first page of what is being written
  size_t buffer_used_ = 0;                // bytes of complete pages
  size_t page_rows_ = 0;                  // rows in the page behind them
  bool finished_ = false;
  PageWriteBehind behind_;
};

}  // namespace hps
