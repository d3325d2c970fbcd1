// Makes a new page file from a page table and what changed since: `page files + changes -> page
// file`, in one pass over both, in bounded memory and at a bounded rate.
//
// Neither the table nor its files are changed, and readers of the table are not blocked. The new
// file is complete and durable when MergePages returns; the caller then switches to it. Until then
// a process that ends leaves nothing that could be taken for a page file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "hps/types.h"
#include "l3_pages/merged_rows.h"
#include "l3_pages/page_format.h"
#include "l3_pages/page_table.h"

namespace hps {

struct PageMergeOptions {
  std::string path;             // of the new file, which must not exist
  Incarnation incarnation = 0;  // of the new file
  // Bytes read and written per second, together. 0: as fast as possible.
  uint64_t bytes_per_second = 0;
  // Asked often. An error ends the merge and is its result. Null: not asked.
  std::function<absl::Status()> check{};
};

// Returns what the new file holds. If no row is left, there is no file: row_count is 0. `cancel`
// ends the merge when it opens. REQUIRES: `changes` and `table` have rows of the same width.
//
// Errors: DATA_LOSS (a page or a file of the table is damaged: its rows would be missing in the new
// file, so nothing is merged; import the table again), CANCELLED, RESOURCE_EXHAUSTED (disk full,
// memory), UNAVAILABLE (the disk fails), ALREADY_EXISTS, NOT_FOUND (no such directory),
// INVALID_ARGUMENT (changes that do not ascend), those of `changes` and of `check`. No file is left
// then.
absl::StatusOr<PageFileDescription> MergePages(const PageTable& table, PageChangeCursor& changes,
                                               const PageMergeOptions& options, Latch& cancel);

}  // namespace hps
