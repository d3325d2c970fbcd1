#include "import/export.h"

#include <chrono>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/macros.h"
#include "import/formats/table_writer.h"

namespace hps {
namespace {

constexpr size_t kBatchKeys = 4096;
constexpr Duration kProgressInterval = std::chrono::milliseconds(250);

}  // namespace

absl::StatusOr<ExportReport> RunExport(const DurableTable& table, const ExportRequest& request) {
  const TimePoint begin = RealClock().Now();
  TimePoint progress_due = begin + kProgressInterval;
  const TableSpec& spec = table.spec();
  // "auto" is what the original reads.
  const TableFormat format =
      request.format == TableFormat::kAuto ? TableFormat::kHugectr : request.format;
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableWriter> writer,
                       TableWriter::Create(format, request.to, spec.dim, spec.dtype));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<RowCursor> cursor, table.Scan());
  const uint64_t total = request.progress ? table.Info().row_count : 0;
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
    if (!request.progress || RealClock().Now() < progress_due) continue;
    request.progress({.step = "writing", .done = writer->row_count(), .total = total});
    progress_due = RealClock().Now() + kProgressInterval;
  }
  HPS_RETURN_IF_ERROR(writer->Finish());
  return ExportReport{.row_count = writer->row_count(),
                      .bytes = writer->bytes(),
                      .seconds = std::chrono::duration<double>(RealClock().Now() - begin).count()};
}

}  // namespace hps
