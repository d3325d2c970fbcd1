// hps convert-config: HugeCTR's ps.json as a configuration of hps.
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/report_file.h"
#include "cli/commands.h"
#include "cli/read_file.h"
#include "import/hugectr_config.h"

namespace hps::cli {
namespace {

void Print(const ConvertConfigArguments& arguments, const ConvertedConfig& converted,
           Output& output) {
  if (output.is_json()) {
    JsonWriter& json = output.json();
    if (arguments.out.empty()) {
      json.Member("config", std::string_view(converted.toml));
    } else {
      json.Member("out", std::string_view(arguments.out));
    }
    json.Name("warnings").BeginArray();
    for (const std::string& warning : converted.warnings) json.Value(std::string_view(warning));
    json.EndArray();
    return;
  }
  for (const std::string& warning : converted.warnings) output.Warn("warning: " + warning);
  if (arguments.out.empty()) {
    output.Write(converted.toml);
  } else {
    output.Line(absl::StrCat(arguments.out, ": written, ", converted.warnings.size(),
                             " warnings; it has the commands that import the tables"));
  }
}

}  // namespace

absl::Status RunConvertConfig(const ConvertConfigArguments& arguments, Output& output) {
  const absl::StatusOr<std::string> text = ReadFile(arguments.file, kHugeCtrConfigBytesMax);
  if (!text.ok()) return text.status();
  const absl::StatusOr<ConvertedConfig> converted = ConvertHugeCtrConfig(*text);
  if (!converted.ok()) {
    return absl::Status(converted.status().code(),
                        absl::StrCat(arguments.file, ": ", converted.status().message()));
  }
  if (!arguments.out.empty()) {
    if (absl::Status written = bench::WriteReportFile(arguments.out, converted->toml);
        !written.ok())
      return written;
  }
  Print(arguments, *converted, output);
  return absl::OkStatus();
}

}  // namespace hps::cli
