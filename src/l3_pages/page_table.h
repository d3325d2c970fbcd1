// The rows of one import of one table, in one page file or several with ascending key ranges.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "hps/types.h"
#include "l3_pages/page_file.h"
#include "l3_pages/page_reader.h"
#include "tier/durable_tier.h"
#include "tier/fetch_batch.h"

namespace hps {

class PageTable {
 public:
  // What is known of a file without reading it. It has rows.
  struct Part {
    std::string path;
    uint64_t row_count = 0;
    Key first_key = 0;
    Key last_key = 0;
  };
  struct Options {
    Incarnation incarnation = 0;
    size_t row_bytes = 0;
    bool direct = false;      // as PageFile::Options
    std::vector<Part> parts;  // ascending
  };

  // Opens the files. A file that is missing, truncated, damaged as a whole, or another one than
  // `parts` says, is logged, and its key range is lost. So is one that the disk can't read, but its
  // keys are missed, with UNAVAILABLE. `reader` must outlive the table. Errors: RESOURCE_EXHAUSTED,
  // PERMISSION_DENIED (as PageFile::Open).
  static absl::StatusOr<std::unique_ptr<PageTable>> Open(const Options& options,
                                                         PageReader& reader);
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Sets every key to kHit, kAbsent or kLost. Fastest with keys in ascending order; any order is
  // correct. A key whose page is not in the reader's cache costs one read, which it shares with the
  // keys of the same page that follow it in ascending order. Errors: DEADLINE_EXCEEDED, UNAVAILABLE
  // (the disk fails), RESOURCE_EXHAUSTED (memory, descriptors); keys that were
  // not reached, or could not be read, are then kMiss.
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) const;

  // As Fetch, for the keys at `positions` only, which are in ascending order of their keys. Leaves
  // the others alone.
  absl::StatusOr<FetchCounts> FetchSome(const FetchBatch& batch,
                                        std::span<const uint32_t> positions,
                                        Deadline deadline) const;

  // Fails with DATA_LOSS at damaged pages, with UNAVAILABLE at those that can't be read. The table
  // must outlive the cursor. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const;

  // Reads everything. Returns the lost key ranges, in ascending order; neighbouring pages are one
  // range. Errors: UNAVAILABLE, RESOURCE_EXHAUSTED.
  absl::StatusOr<std::vector<PageKeyRange>> FindDamage() const;

  size_t row_bytes() const { return row_bytes_; }
  // As the parts say.
  uint64_t row_count() const;
  uint64_t file_bytes() const;
  // True if header, footer or index of a file were damaged or unreadable when it was opened, or the
  // whole file.
  bool is_impaired() const;

 private:
  friend class PageCursor;
  friend class PageFetcher;

  struct OpenPart {
    Part part;
    std::unique_ptr<PageFile> file{};  // null: lost, or unreadable
    uint64_t cache_file = 0;           // its number in the reader's cache; 0: is not cached
    absl::Status unreadable{};         // why it could not be opened: an error of the disk
  };

  PageTable(size_t row_bytes, PageReader& reader) : row_bytes_(row_bytes), reader_(reader) {}

  const size_t row_bytes_;
  PageReader& reader_;
  std::vector<OpenPart> parts_;
  size_t page_bytes_max_ = kPageBlockBytes;
};

}  // namespace hps
