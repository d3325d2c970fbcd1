#include "l3_pages/page_merge.h"

#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/rate_limiter.h"
#include "l3_pages/page_file_writer.h"

namespace hps {

absl::StatusOr<PageFileDescription> MergePages(const PageTable& table, PageChangeCursor& changes,
                                               const PageMergeOptions& options, Latch& cancel) {
  const size_t row_bytes = table.row_bytes();
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<RowCursor> base, table.Scan());
  MergedRows rows(std::move(base), changes, row_bytes);
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<PageFileWriter> writer,
                       PageFileWriter::Create(options.path, options.incarnation, row_bytes));
  HPS_RETURN_IF_ERROR(writer->Reserve(table.row_count()));
  RateLimiter pace(options.bytes_per_second, Duration::zero());  // keeps it over every interval
  bool is_empty = true;
  for (;;) {
    HPS_ASSIGN_OR_RETURN(const MergedRows::Step step,
                         rows.Next(std::numeric_limits<size_t>::max()));
    if (step.at_end) break;
    if (step.read_count > 0) {
      // Rows that were read are also written, more or less.
      const uint64_t bytes = 2 * step.read_count * (row_bytes + sizeof(Key) + sizeof(Version));
      if (cancel.WaitUntil(pace.Take(bytes, RealClock().Now()))) {
        return absl::CancelledError(
            absl::StrCat("the merge into ", options.path, " was cancelled"));
      }
      if (options.check) HPS_RETURN_IF_ERROR(options.check());
    }
    HPS_RETURN_IF_ERROR(writer->Add(step.run.keys, step.run.rows, step.run.versions));
    is_empty = is_empty && step.run.keys.empty();
  }
  if (!is_empty) return writer->Finish();
  PageFileDescription nothing;
  nothing.incarnation = options.incarnation;
  nothing.shape = PageShape::Of(row_bytes);
  return nothing;
}

}  // namespace hps
