// Loads one table into a bulk import in bounded memory. Reads rows in any order, writes them in
// ascending key order.
//
//   already ascending  ->  copied in parallel ranges
//   fits the budget    ->  sorted in memory, one run per lane, merged in parallel key ranges
//   else               ->  sorted runs are spilled to files without a name, then merged in parallel
//                          key ranges, in several passes if there are very many runs
//
// Bound: the writer of page files behind BulkImport::Add. All other steps move a row at most three
// times: from file to memory, from memory to spill, from spill to memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/executor.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "import/formats/table_reader.h"
#include "import/memory_budget.h"
#include "import/row_merge.h"
#include "import/sorted_run.h"
#include "tier/durable_tier.h"
#include "types/elements.h"

namespace hps {

// How a lane (the share of one thread in an import) divides its memory for rows of one width. The
// minimum, kImportMemoryBytesMin, holds a few of the widest rows and their buffers.
struct LanePlan {
  size_t io_bytes = 0;         // one buffer between files, runs and the store
  uint64_t run_rows_max = 0;   // rows of a run that is sorted at once
  size_t cursor_bytes = 0;     // maximum of all read buffers of a merge
  size_t merged_runs_max = 0;  // maximum number of spilled runs in one merge
};

// REQUIRES: lane_bytes >= kImportMemoryBytesMin, row_bytes <= kRowBytesMax.
LanePlan PlanLane(uint64_t lane_bytes, size_t row_bytes);

// State that the loaders of one import share.
struct LoadContext {
  Executor& executor;
  size_t lane_count = 1;
  MemoryBudget& budget;  // at least lane_count * kImportMemoryBytesMin
  std::string spill_directory;
  std::function<void(const std::string& step, uint64_t rows_done)> progress;  // may be empty
};

// For one thread. The work runs on the context's executor.
class TableLoader {
 public:
  TableLoader(const LoadContext& context, const TableSpec& spec, const TableReader& reader,
              BulkImport& import, size_t table);

  // Errors: INVALID_ARGUMENT (a duplicate key), DATA_LOSS (from the table's files),
  // RESOURCE_EXHAUSTED (memory, disk, or more than kSortedRunsMax runs), those of BulkImport::Add.
  absl::Status Load();

  ElementCounts element_counts() const {
    return {.non_finite = elements_.non_finite, .overflowed = elements_.overflowed};
  }
  uint64_t spilled_run_count() const { return spilled_run_count_; }
  uint64_t merge_pass_count() const { return merge_pass_count_; }

 private:
  using Failed = std::atomic<bool>;
  using Part = std::vector<RunSlice>;

  absl::StatusOr<bool> IsAscending();
  absl::Status LoadAscending();
  absl::Status CopyRange(uint32_t part, uint64_t begin, uint64_t end, const Failed& failed);

  absl::StatusOr<std::vector<File>> CreateSpillFiles() const;
  absl::Status SortRuns();
  absl::StatusOr<SortedRun> ReadRun(uint64_t begin, uint64_t end);
  absl::Status ReadEntries(uint64_t begin, std::span<SortEntry> entries, bool* ascending);
  absl::Status ReadRows(uint64_t begin, std::span<std::byte> rows);
  absl::StatusOr<BudgetBuffer<std::byte>> CursorBuffers(std::span<const RunSlice> slices) const;
  absl::StatusOr<SortedRun> SpillMerged(std::span<const RunSlice> slices, const File& file,
                                        uint64_t offset, const Failed& failed);
  absl::Status ReduceRuns();
  absl::Status MergePass();

  absl::StatusOr<std::vector<Part>> SplitParts();
  absl::Status WriteParts();
  absl::Status WritePart(uint32_t part, const Part& slices, const Failed& failed);

  absl::Status Run(const std::string& step, size_t step_count,
                   std::function<absl::Status(size_t, const Failed&)> work);
  size_t part_count() const;
  RepeatedKeys repeated_keys() const {
    return reader_.shape().keys_repeat ? RepeatedKeys::kLastCounts : RepeatedKeys::kRefused;
  }

  const LoadContext& context_;
  const TableSpec& spec_;
  const TableReader& reader_;
  BulkImport& import_;
  const size_t table_;
  const LanePlan plan_;
  const uint64_t row_count_;
  const size_t row_bytes_;
  const size_t record_bytes_;

  std::vector<File> spill_;      // empty if all rows fit in memory
  std::vector<SortedRun> runs_;  // after sorting: ordered by first position
  std::atomic<uint64_t> rows_done_ = 0;
  struct {
    std::atomic<uint64_t> non_finite = 0;
    std::atomic<uint64_t> overflowed = 0;
  } elements_;
  uint64_t spilled_run_count_ = 0;
  uint64_t merge_pass_count_ = 0;
};

}  // namespace hps
