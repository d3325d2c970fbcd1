// hps import, export, drop, generate: tables in and out.
#include <chrono>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "hps/model_import.h"
#include "hps/store.h"
#include "import/generate.h"

namespace hps::cli {
namespace {

void WriteTable(const ImportedTable& table, JsonWriter& json) {
  json.Member("table", std::string_view(table.info.spec.name));
  json.Member("rows", table.info.row_count).Member("bytes", table.bytes_read);
  json.Member("dim", table.info.spec.dim).Member("dtype", DtypeName(table.info.spec.dtype));
  json.Member("non_finite", table.non_finite_count);
}

void WriteReport(const ImportReport& report, bool whole_model, JsonWriter& json) {
  if (whole_model) {
    uint64_t rows = 0, bytes = 0;
    json.Name("tables").BeginArray();
    for (const ImportedTable& table : report.tables) {
      json.BeginObject();
      WriteTable(table, json);
      json.EndObject();
      rows += table.info.row_count;
      bytes += table.bytes_read;
    }
    json.EndArray().Member("rows", rows).Member("bytes", bytes);
  } else if (!report.tables.empty()) {
    WriteTable(report.tables.front(), json);
  }
  json.Member("seconds", report.seconds).Member("staged", report.staged);
  json.Name("warnings").BeginArray();
  for (const std::string& warning : report.warnings) json.Value(std::string_view(warning));
  json.EndArray();
}

void PrintReport(const ImportReport& report, Output& output) {
  uint64_t bytes = 0;
  for (const ImportedTable& table : report.tables) {
    bytes += table.bytes_read;
    output.Line(absl::StrCat(table.info.spec.name, ": ", table.info.row_count, " rows of dim ",
                             table.info.spec.dim, ", ",
                             std::string(DtypeName(table.info.spec.dtype))));
  }
  const double rate = static_cast<double>(bytes) / std::max(report.seconds, 1e-9);
  output.Line(absl::StrCat(report.staged ? "staged " : "imported ",
                           ReadableBytes(static_cast<double>(bytes)), " in ",
                           Fixed(report.seconds, 2), " s (", ReadableBytes(rate), "/s)"));
  if (report.staged)
    output.Line("a server has the store: it takes the import at its next start or `load`");
}

}  // namespace

absl::Status RunCommand(const ImportArguments& arguments, const Config& config, Output& output) {
  ProgressMeter meter("import " + arguments.request.name);
  ImportRequest request = arguments.request;
  request.progress = meter.function();
  if (!arguments.dims.empty()) request.dim = static_cast<uint32_t>(arguments.dims.front());
  if (!arguments.default_values.empty()) request.default_value = arguments.default_values.front();
  std::vector<TableSource> tables = arguments.tables;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (arguments.dims.size() > 1) tables[i].dim = static_cast<uint32_t>(arguments.dims[i]);
    if (arguments.default_values.size() > 1) tables[i].default_value = arguments.default_values[i];
  }
  HPS_ASSIGN_OR_RETURN(const ImportReport report, ImportModel(config, request, tables));
  meter.Clear();
  if (output.is_json()) {
    WriteReport(report, request.name.find('/') == std::string::npos, output.json());
  } else {
    for (const std::string& warning : report.warnings) output.Line("warning: " + warning);
    PrintReport(report, output);
  }
  return absl::OkStatus();
}

absl::Status RunCommand(const ExportArguments& arguments, const Config& config, Output& output) {
  HPS_ASSIGN_OR_RETURN(const auto store, Store::Open(config, OpenMode::kReadOnly));
  ProgressMeter meter("export " + arguments.request.name);
  ExportRequest request = arguments.request;
  request.progress = meter.function();
  HPS_ASSIGN_OR_RETURN(const ExportReport report, store->Export(request));
  meter.Clear();
  if (output.is_json()) {
    output.json().Member("table", std::string_view(request.name));
    output.json().Member("to", std::string_view(request.to));
    output.json().Member("rows", report.row_count).Member("bytes", report.bytes);
    output.json().Member("seconds", report.seconds);
  } else {
    output.Line(absl::StrCat(request.name, ": ", report.row_count, " rows, ",
                             ReadableBytes(static_cast<double>(report.bytes)), " written to ",
                             request.to, " in ", Fixed(report.seconds, 2), " s"));
  }
  return absl::OkStatus();
}

absl::Status RunCommand(const DropArguments& arguments, const Config& config, Output& output) {
  HPS_RETURN_IF_ERROR(DropTable(config, arguments.name));
  if (output.is_json()) {
    const bool is_table = arguments.name.find('/') != std::string::npos;
    output.json().Member(is_table ? "table" : "model", std::string_view(arguments.name));
    output.json().Member("dropped", true);
  } else {
    output.Line("dropped " + arguments.name);
  }
  return absl::OkStatus();
}

absl::Status RunCommand(const GenerateArguments& arguments, Output& output) {
  const auto start = std::chrono::steady_clock::now();
  ProgressMeter meter("generate " + arguments.request.out);
  GenerateRequest request = arguments.request;
  request.progress = meter.function();
  HPS_RETURN_IF_ERROR(GenerateTables(request));
  meter.Clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (output.is_json()) {
    output.json().Member("out", std::string_view(request.out));
    output.json().Member("tables", request.tables).Member("rows", request.rows);
    output.json().Member("dim", request.dim).Member("requests", request.requests);
    output.json().Member("seconds", seconds);
  } else {
    output.Line(absl::StrCat(request.out, ": ", request.tables, " tables, ", request.rows,
                             " rows of dim ", request.dim, ", ", request.requests, " requests in ",
                             Fixed(seconds, 2), " s"));
  }
  return absl::OkStatus();
}

}  // namespace hps::cli
