// Streams planned tables into a bulk import, in bounded memory, and commits it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "import/import_plan.h"
#include "tier/durable_tier.h"

namespace hps {

struct ImportOptions {
  // Where sorted runs go when a table does not fit the memory: a directory on a disk with room for
  // the largest table. Only files without a name are made in it.
  std::string spill_directory;
  // Of buffers and, from 2 x kPartBytesMax a thread on, of the parts that the threads write: there
  // are no more threads than that, but two. At least 256 KiB.
  uint64_t memory_bytes_max = uint64_t{512} << 20;
  uint32_t threads = 0;  // 0 = the number of cores
  ProgressFunction progress{};
};

// What the memory and the passes of an import were, for tests and benchmarks.
struct ImportEffort {
  uint64_t memory_bytes_peak = 0;  // of the buffers that the budget bounds
  uint64_t spilled_runs = 0;
  uint64_t merge_passes = 0;
};

// `import` was begun with plan.specs(), in their order. Everything is committed, or nothing is:
// after an error the caller destroys `import`. `effort` may be null.
// Errors: INVALID_ARGUMENT (a duplicate key, with both positions; a memory that is too small),
// DATA_LOSS (a file can't be read or was changed meanwhile), RESOURCE_EXHAUSTED (memory, disk),
// those of BulkImport.
absl::StatusOr<ImportReport> RunImport(const ImportPlan& plan, BulkImport& import,
                                       const ImportOptions& options, ImportEffort* effort);

}  // namespace hps
