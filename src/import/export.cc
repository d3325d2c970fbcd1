#include "import/export.h"

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/macros.h"
#include "import/formats/table_writer.h"
#include "types/progress_reporter.h"

namespace hps {
namespace {

constexpr size_t kBatchKeys = 4096;

}  // namespace

absl::StatusOr<ExportReport> RunExport(const DurableTable& table, const ExportRequest& request) {
  const TimePoint begin = RealClock().Now();
  const TableSpec& spec = table.spec();
  // "auto" is what the original reads.
  const TableFormat format =
      request.format == TableFormat::kAuto ? TableFormat::kHugectr : request.format;
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableWriter> writer,
                       TableWriter::Create(format, request.to, spec.dim, spec.dtype));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<RowCursor> cursor, table.Scan());
  ProgressReporter progress(request.progress, request.progress ? table.Info().row_count : 0);
  std::vector<Key> keys(kBatchKeys);
  std::vector<std::byte> rows(kBatchKeys * spec.row_bytes());
  HostRows view{.data = rows.data(),
                .row_count = kBatchKeys,
                .row_bytes = spec.row_bytes(),
                .stride_bytes = spec.row_bytes()};
  while (true) {
    HPS_ASSIGN_OR_RETURN(const size_t count, cursor->Next(keys, view, {}));
    if (count == 0) break;
    HPS_RETURN_IF_ERROR(writer->Append(std::span(keys).first(count), view));
    progress.Report("writing", writer->row_count());
  }
  HPS_RETURN_IF_ERROR(writer->Finish());
  return ExportReport{.row_count = writer->row_count(),
                      .bytes = writer->bytes(),
                      .seconds = std::chrono::duration<double>(RealClock().Now() - begin).count()};
}

}  // namespace hps
