#include "import/import.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/macros.h"
#include "import/import_source.h"
#include "import/table_loader.h"

namespace hps {
namespace {

uint64_t RowCount(const ImportPlan& plan) {
  uint64_t rows = 0;
  for (const ImportSource& table : plan.tables) rows += table.shape.row_count;
  return rows;
}

absl::StatusOr<size_t> LaneCount(const ImportOptions& options) {
  if (options.memory_bytes_max < kImportMemoryBytesMin) {
    return absl::InvalidArgumentError(absl::StrCat("import: memory_bytes_max is ",
                                                   options.memory_bytes_max, ", expected at least ",
                                                   kImportMemoryBytesMin));
  }
  const uint64_t threads =
      options.threads != 0 ? options.threads : std::max(std::thread::hardware_concurrency(), 1U);
  // Each thread also writes a part of the import, which takes memory.
  const uint64_t with_parts = options.memory_bytes_max / (2 * kPartBytesMax);
  return static_cast<size_t>(std::min<uint64_t>({threads, kImportThreadsMax,
                                                 options.memory_bytes_max / kImportMemoryBytesMin,
                                                 std::max<uint64_t>(with_parts, 2)}));
}

// Returns the memory for buffers: what remains after the parts, one per thread.
uint64_t BufferBytes(uint64_t memory_bytes_max, size_t lane_count) {
  const uint64_t part_bytes = lane_count * kPartBytesMax;
  return memory_bytes_max >= 2 * part_bytes ? memory_bytes_max - part_bytes : memory_bytes_max;
}

// Refuses rows that exceed the disk before reading any: input files may be sparse, so a table of
// tebibytes may be a small file.
absl::Status CheckRoom(const ImportPlan& plan, const std::string& directory) {
  std::error_code error;
  const std::filesystem::space_info disk = std::filesystem::space(directory, error);
  if (error) return absl::OkStatus();  // the first write reports the error
  uint64_t needed = 0;
  for (const ImportSource& table : plan.tables) {
    const std::optional<uint64_t> bytes =
        CheckedMultiply(table.shape.row_count, table.spec.row_bytes());
    const std::optional<uint64_t> sum = bytes.has_value() ? CheckedAdd(needed, *bytes) : bytes;
    needed = sum.value_or(std::numeric_limits<uint64_t>::max());
    if (needed <= disk.available) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        table.path, ": ", table.shape.row_count, " rows of ", table.spec.row_bytes(),
        " bytes exceed the ", disk.available, " free bytes of the disk of ", directory));
  }
  return absl::OkStatus();
}

void AddWarnings(const ImportSource& table, const ElementCounts& counts,
                 std::vector<std::string>& warnings) {
  if (counts.non_finite > 0) {
    warnings.push_back(absl::StrCat("table '", table.spec.name, "': ", counts.non_finite,
                                    " elements are NaN or infinite"));
  }
  if (counts.overflowed > 0) {
    const std::string_view dtype = DtypeName(table.spec.dtype);
    warnings.push_back(absl::StrCat(
        "table '", table.spec.name, "': ", counts.overflowed, " elements are too large for ",
        absl::string_view(dtype.data(), dtype.size()), " and became infinite"));
  }
}

// Nodes that give the same import id share rows, so their streams must begin at the same records.
absl::Status SetImportId(const ImportOptions& options, BulkImport& import) {
  if (options.import_id.empty()) return absl::OkStatus();
  const bool is_shared_start =
      options.update_start.has_value() && options.update_start->kind != UpdateStart::Kind::kEnd;
  if (!is_shared_start) {
    return absl::InvalidArgumentError(absl::StrCat(
        "import id '", options.import_id,
        "' needs a start of the update stream that is the same on all nodes: its beginning or a "
        "time (--stream-from earliest or TIME; in Python stream_from)"));
  }
  return import.SetImportId(options.import_id);
}

}  // namespace

absl::StatusOr<ImportReport> RunImport(const ImportPlan& plan, BulkImport& import,
                                       const ImportOptions& options, ImportEffort* effort) {
  const TimePoint begin = RealClock().Now();
  UpdateStart start = options.update_start.value_or(plan.begin);
  if (start.kind == UpdateStart::Kind::kEnd) start.time_ms = plan.begin.time_ms;
  import.SetUpdateStart(start);
  HPS_RETURN_IF_ERROR(SetImportId(options, import));
  HPS_ASSIGN_OR_RETURN(const size_t lane_count, LaneCount(options));
  HPS_RETURN_IF_ERROR(CheckRoom(plan, options.spill_directory));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool,
                       WorkerPool::Create({.name = "hps-import", .thread_count = lane_count}));
  MemoryBudget budget(BufferBytes(options.memory_bytes_max, lane_count));
  const uint64_t total = 2 * RowCount(plan);  // every row is read once and written once
  uint64_t done_before = 0;
  LoadContext context{.executor = *pool,
                      .lane_count = lane_count,
                      .budget = budget,
                      .spill_directory = options.spill_directory,
                      .progress = {}};
  if (options.progress) {
    context.progress = [&](const std::string& step, uint64_t rows_done) {
      options.progress({.step = step, .done = done_before + rows_done, .total = total});
    };
  }
  ImportReport report;
  for (size_t i = 0; i < plan.tables.size(); ++i) {
    const ImportSource& table = plan.tables[i];
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> reader, table.Open());
    TableLoader loader(context, table.spec, *reader, import, i);
    HPS_RETURN_IF_ERROR(loader.Load());
    done_before += 2 * table.shape.row_count;
    AddWarnings(table, loader.element_counts(), report.warnings);
    report.tables.push_back({.info = {},
                             .bytes_read = reader->data_bytes(),
                             .non_finite_count = loader.element_counts().non_finite});
    if (effort != nullptr) {
      effort->spilled_runs += loader.spilled_run_count();
      effort->merge_passes += loader.merge_pass_count();
    }
  }
  if (plan.network.has_value()) HPS_RETURN_IF_ERROR(import.SetNetwork(plan.model(), *plan.network));
  if (options.progress) options.progress({.step = "committing", .done = total, .total = total});
  HPS_ASSIGN_OR_RETURN(BulkImport::Result result, import.Commit());
  HPS_CHECK(result.tables.size() == report.tables.size());
  for (size_t i = 0; i < report.tables.size(); ++i)
    report.tables[i].info = std::move(result.tables[i]);
  report.staged = result.staged;
  report.seconds = std::chrono::duration<double>(RealClock().Now() - begin).count();
  if (effort != nullptr) effort->memory_bytes_peak = budget.bytes_peak();
  return report;
}

}  // namespace hps
