// The rows of a page table with the changes made since, in ascending key order. A scan and a merge
// both read a table through it, so they see the same rows.
//
// A change replaces the row of its key, and a deletion removes it. Reads a bounded number of rows
// at a time and hands out spans of them, without a copy. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/span.h"
#include "hps/types.h"
#include "tier/durable_tier.h"

namespace hps {

// The changes of a table in ascending key order, one change per key. Not thread-safe.
class PageChangeCursor {
 public:
  struct Changes {
    std::span<const Key> keys;
    // [keys]: 1 = the key was deleted; its row and version are ignored.
    std::span<const uint8_t> deleted;
    HostRows rows;  // [keys, row bytes of the table]
    std::span<const Version> versions;
  };
  virtual ~PageChangeCursor() = default;

  // The changes that follow; none, also in further calls: there are no more. Valid until the next
  // call.
  virtual absl::StatusOr<Changes> Next() = 0;
};

class MergedRows {
 public:
  struct Run {
    std::span<const Key> keys;
    HostRows rows;
    std::span<const Version> versions;
  };
  struct Step {
    Run run{};              // empty: a deletion, or the end
    size_t read_count = 0;  // rows and changes that this step has read
    bool at_end = false;
  };

  // REQUIRES: `base` and `changes` have rows of `row_bytes`; `changes` outlives this.
  MergedRows(std::unique_ptr<RowCursor> base, PageChangeCursor& changes, size_t row_bytes);
  MergedRows(const MergedRows&) = delete;
  MergedRows& operator=(const MergedRows&) = delete;

  // At most `row_count_max` rows that follow, valid until the next call. Errors: INVALID_ARGUMENT
  // (changes that do not ascend), those of both sources; do not call again then.
  absl::StatusOr<Step> Next(size_t row_count_max);

 private:
  absl::StatusOr<size_t> Read();

  const std::unique_ptr<RowCursor> base_cursor_;
  PageChangeCursor& change_cursor_;
  std::vector<Key> keys_;  // the base's rows of one read
  std::vector<Version> versions_;
  std::vector<std::byte> bytes_;
  const HostRows rows_;
  // Rows and changes that were read and have not been returned by Next.
  Run base_;
  Run changes_;
  std::span<const uint8_t> deleted_;  // of changes_
  std::optional<Key> last_change_;    // that was read
};

}  // namespace hps
