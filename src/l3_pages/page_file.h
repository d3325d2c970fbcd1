// A page file that is open for reading (page_format.h, docs/page_files.md). PageTable fetches rows
// from it.
//
// The first key of each page is in memory, so a key costs one read. Each page is checked whenever
// it is read. The keys of a damaged page, known by the index, are lost: never absent, and never a
// wrong row. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "l3_pages/page_file_handle.h"
#include "l3_pages/page_format.h"

namespace hps {

// Keys from first to last, both included, of which `row_count` exist; it is unknown which.
struct PageKeyRange {
  Key first = 0;
  Key last = 0;
  uint64_t row_count = 0;
  friend bool operator==(const PageKeyRange&, const PageKeyRange&) = default;
};

class PageFile {
 public:
  struct Options {
    std::string path;
    Incarnation incarnation = 0;
    size_t row_bytes = 0;
    // Reads past the page cache of the system. The file system must support O_DIRECT.
    bool direct = false;
  };

  // Reads header, footer and index: 8 bytes for each page. If the index is damaged or can't be
  // read, reads all pages. Errors: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE
  // (the disk fails, for header and footer or for index and pages), DATA_LOSS (the file is
  // truncated, has neither header nor footer, or is of another incarnation or width).
  static absl::StatusOr<std::unique_ptr<PageFile>> Open(const Options& options);
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  // Reads the whole file. Returns the key ranges of damaged pages, in ascending order; neighbours
  // are one range. Errors: UNAVAILABLE (also if header, footer or index could not be read when the
  // file was opened), RESOURCE_EXHAUSTED.
  absl::StatusOr<std::vector<PageKeyRange>> FindDamage() const;

  const PageFileDescription& description() const { return description_; }
  // True if header, footer or index were damaged, or could not be read, when the file was opened.
  // Every row can be read nevertheless, but the file should be made again.
  bool is_impaired() const { return impaired_; }

  // Number of the last page from `from` on whose first key is not above `key`. REQUIRES: `from` is
  // such a page.
  size_t PageOf(Key key, size_t from) const;
  // The keys that are in this page if they exist.
  PageKeyRange RangeOf(size_t page) const;
  bool IsIntact(size_t page, std::span<const std::byte> bytes) const {
    return PageIsIntact(description_.incarnation, page, bytes);
  }
  void LogDamage(size_t page) const;
  const PageFileHandle& file() const { return file_; }

 private:
  PageFile(PageFileHandle file, const PageFileDescription& description)
      : file_(std::move(file)), description_(description) {}
  absl::Status LoadIndex();
  absl::Status RebuildIndex(const absl::Status& why);

  const PageFileHandle file_;
  const PageFileDescription description_;
  std::vector<Key> first_keys_;  // [page_count]
  bool impaired_ = false;
  absl::Status read_error_;  // of header, footer or index when the file was opened
};

}  // namespace hps
