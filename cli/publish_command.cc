// hps publish: rows of table files to the update stream.
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "hps/publish.h"

namespace hps::cli {

absl::Status RunCommand(const PublishArguments& arguments, Output& output) {
  ProgressMeter meter("publish " + arguments.request.table);
  PublishRequest request = arguments.request;
  request.progress = meter.function();
  HPS_ASSIGN_OR_RETURN(const PublishReport report, PublishTable(request));
  meter.Clear();
  if (output.is_json()) {
    output.json().Member("table", std::string_view(request.table));
    output.json().Member("rows", report.rows).Member("batches", report.batches);
    output.json().Member("bytes", report.bytes).Member("seconds", report.seconds);
  } else {
    output.Line(absl::StrCat(
        request.table, ": ", report.rows, request.is_delete ? " deletes" : " rows",
        " published in ", report.batches, " messages, ",
        ReadableBytes(static_cast<double>(report.bytes)), ", in ", Fixed(report.seconds, 2), " s"));
  }
  return absl::OkStatus();
}

}  // namespace hps::cli
