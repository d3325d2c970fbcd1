#include "import/import.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/macros.h"
#include "import/table_loader.h"

namespace hps {
namespace {

uint64_t RowCount(const ImportPlan& plan) {
  uint64_t rows = 0;
  for (const TableSource& table : plan.tables) rows += table.reader->shape().row_count;
  return rows;
}

absl::StatusOr<size_t> LaneCount(const ImportOptions& options) {
  if (options.memory_bytes_max < kLaneBytesMin) {
    return absl::InvalidArgumentError(absl::StrCat("import: memory_bytes_max is ",
                                                   options.memory_bytes_max, ", expected at least ",
                                                   kLaneBytesMin));
  }
  const uint64_t threads =
      options.threads != 0 ? options.threads : std::max(std::thread::hardware_concurrency(), 1U);
  return static_cast<size_t>(
      std::min<uint64_t>({threads, kImportThreadsMax, options.memory_bytes_max / kLaneBytesMin}));
}

void AddWarnings(const TableSource& table, const ElementCounts& counts,
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

}  // namespace

absl::StatusOr<ImportReport> RunImport(const ImportPlan& plan, BulkImport& import,
                                       const ImportOptions& options, ImportEffort* effort) {
  const TimePoint begin = RealClock().Now();
  HPS_ASSIGN_OR_RETURN(const size_t lane_count, LaneCount(options));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool,
                       WorkerPool::Create({.name = "hps-import", .thread_count = lane_count}));
  MemoryBudget budget(options.memory_bytes_max);
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
    const TableSource& table = plan.tables[i];
    TableLoader loader(context, table.spec, *table.reader, import, i);
    HPS_RETURN_IF_ERROR(loader.Load());
    done_before += 2 * table.reader->shape().row_count;
    AddWarnings(table, loader.element_counts(), report.warnings);
    report.tables.push_back({.info = {},
                             .bytes_read = table.reader->data_bytes(),
                             .non_finite_count = loader.element_counts().non_finite});
    if (effort != nullptr) {
      effort->spilled_runs += loader.spilled_run_count();
      effort->merge_passes += loader.merge_pass_count();
    }
  }
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
