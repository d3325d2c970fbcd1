// Streams planned tables into a bulk import in bounded memory, and commits the import.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "import/import_plan.h"
#include "tier/durable_tier.h"

namespace hps {

struct ImportOptions {
  // Directory for the sorted runs of tables that exceed the memory. Its disk needs room for the
  // largest table. Only files without a name are created there.
  std::string spill_directory;
  // Limits the buffers. At 2 x kPartBytesMax per thread or more, it also limits the parts that the
  // threads write: there are no more threads than this allows, but at least two. Minimum: 256 KiB.
  uint64_t memory_bytes_max = uint64_t{512} << 20;
  uint32_t threads = 0;  // 0 = the number of cores
  ProgressFunction progress{};
  // Where the tables begin to read their update streams; nullopt = at plan.begin, so that changes
  // published while the import runs are not missed.
  std::optional<UpdateStart> update_start{};
  std::string import_id{};  // ImportRequest::import_id
};

// Memory and passes that an import has used, for tests and benchmarks.
struct ImportEffort {
  uint64_t memory_bytes_peak = 0;  // of the buffers in the memory budget
  uint64_t spilled_runs = 0;
  uint64_t merge_passes = 0;
};

// REQUIRES: `import` was begun with plan.specs() in their order. Commits all tables or none. After
// an error the caller destroys `import`. `effort` may be null. Errors: INVALID_ARGUMENT (a
// duplicate key, with both positions; too little memory; an import id without a start of the stream
// that is the same on all nodes), DATA_LOSS (a file is unreadable or has changed),
// RESOURCE_EXHAUSTED (memory, disk), those of BulkImport.
absl::StatusOr<ImportReport> RunImport(const ImportPlan& plan, BulkImport& import,
                                       const ImportOptions& options, ImportEffort* effort);

}  // namespace hps
