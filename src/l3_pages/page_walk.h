// Reads all pages of a page file, one after the other.
//
// Not thread-safe. The file must outlive the walk.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "l3_pages/page_file.h"
#include "l3_pages/page_file_handle.h"

namespace hps {

class PageWalk {
 public:
  struct Page {
    std::span<const std::byte> bytes;  // valid until the next call of Next
    bool intact = false;
  };

  explicit PageWalk(const PageFile& file) : file_(file) {}

  // REQUIRES: fewer pages than the file has were returned. Errors: UNAVAILABLE,
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<Page> Next();

  size_t next_page() const { return next_; }
  bool AtEnd() const { return next_ == file_.description().page_count(); }
  const PageFile& file() const { return file_; }

 private:
  absl::Status Refill();

  const PageFile& file_;
  AlignedBytes bytes_;
  size_t first_ = 0;  // the pages in bytes_
  size_t end_ = 0;
  size_t next_ = 0;
};

}  // namespace hps
