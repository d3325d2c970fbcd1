// hps split-onnx: a trained model into tables and dense network.
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "import/split_files.h"

namespace hps::cli {
namespace {

void WriteReport(const SplitReport& report, JsonWriter& json) {
  json.Name("tables").BeginArray();
  for (const OnnxSplitTable& table : report.tables) {
    json.BeginObject().Member("table", std::string_view(table.name));
    json.Member("rows", table.row_count).Member("dim", table.dim);
    json.Member("dtype", DtypeName(table.dtype()));
    json.Member("pooling", PoolingName(table.pooling));
    json.Member("network_input", std::string_view(table.network_input)).EndObject();
  }
  json.EndArray().Name("client_inputs").BeginArray();
  for (const std::string& input : report.client_inputs) json.Value(std::string_view(input));
  json.EndArray().Member("network_bytes", report.network_bytes);
  json.Name("remarks").BeginArray();
  for (const std::string& remark : report.remarks) json.Value(std::string_view(remark));
  json.EndArray();
}

}  // namespace

absl::Status RunCommand(const SplitOnnxArguments& arguments, Output& output) {
  HPS_ASSIGN_OR_RETURN(const SplitReport report, SplitOnnxFile(arguments.model, arguments.out));
  if (output.is_json()) {
    output.json().Member("out", std::string_view(arguments.out));
    WriteReport(report, output.json());
    return absl::OkStatus();
  }
  for (const OnnxSplitTable& table : report.tables) {
    output.Line(absl::StrCat(table.name, ": ", table.row_count, " rows of dim ", table.dim, ", ",
                             std::string(DtypeName(table.dtype())), ", pooling ",
                             PoolingName(table.pooling)));
  }
  output.Line(absl::StrCat("network: ", ReadableBytes(static_cast<double>(report.network_bytes))));
  for (const std::string& input : report.client_inputs)
    output.Line("clients send the input '" + input + "'");
  for (const std::string& remark : report.remarks) output.Line(remark);
  output.Line("written to " + arguments.out);
  return absl::OkStatus();
}

}  // namespace hps::cli
