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

absl::Status Deliver(const RowSink& sink, std::span<const Key> keys, HostRows rows) {
  rows.row_count = keys.size();
  return sink(keys, rows);
}

}  // namespace

absl::StatusOr<ExportReport> RunExport(const DurableTable& table, const ExportRequest& request) {
  const TimePoint begin = RealClock().Now();
  const TableSpec& spec = table.spec();
  std::unique_ptr<TableWriter> writer;  // null: the caller's sink takes the rows
  if (!request.sink) {
    // "auto" exports HugeCTR's format.
    const TableFormat format =
        request.format == TableFormat::kAuto ? TableFormat::kHugectr : request.format;
    HPS_ASSIGN_OR_RETURN(writer, TableWriter::Create(format, request.to, spec.dim, spec.dtype));
  }
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<RowCursor> cursor, table.Scan());
  ProgressReporter progress(request.progress, request.progress ? table.Info().row_count : 0);
  std::vector<Key> keys(kBatchKeys);
  std::vector<std::byte> rows(kBatchKeys * spec.row_bytes());
  HostRows view{.data = rows.data(),
                .row_count = kBatchKeys,
                .row_bytes = spec.row_bytes(),
                .stride_bytes = spec.row_bytes()};
  ExportReport report;
  while (true) {
    HPS_ASSIGN_OR_RETURN(const size_t count, cursor->Next(keys, view, {}));
    if (count == 0) break;
    const std::span<const Key> found = std::span(keys).first(count);
    HPS_RETURN_IF_ERROR(writer == nullptr ? Deliver(request.sink, found, view)
                                          : writer->Append(found, view));
    report.row_count += count;
    report.bytes += count * (sizeof(Key) + spec.row_bytes());
    progress.Report("writing", report.row_count);
  }
  if (writer != nullptr) {
    HPS_RETURN_IF_ERROR(writer->Finish());
    report.bytes = writer->bytes();
  }
  report.seconds = std::chrono::duration<double>(RealClock().Now() - begin).count();
  return report;
}

}  // namespace hps
