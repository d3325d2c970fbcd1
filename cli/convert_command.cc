// hps convert-config: HugeCTR's ps.json as a configuration of hps.
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "cli/read_file.h"
#include "import/formats/result_file.h"
#include "import/hugectr_config.h"

namespace hps::cli {
namespace {

void WriteList(std::string_view name, const std::vector<std::string>& texts, JsonWriter& json) {
  json.Name(name).BeginArray();
  for (const std::string& text : texts) json.Value(std::string_view(text));
  json.EndArray();
}

void Print(const ConvertConfigArguments& arguments, const ConvertedConfig& converted,
           Output& output) {
  if (output.is_json()) {
    JsonWriter& json = output.json();
    if (arguments.out.empty()) {
      json.Member("config", std::string_view(converted.toml));
    } else {
      json.Member("out", std::string_view(arguments.out));
    }
    WriteList("imports", converted.imports, json);
    WriteList("converted", converted.converted, json);
    WriteList("warnings", converted.warnings, json);
    return WriteList("not_needed", converted.not_needed, json);
  }
  output.Warn("converted: " + absl::StrJoin(converted.converted, ", "));
  if (!converted.not_needed.empty())
    output.Warn("not needed: " + absl::StrJoin(converted.not_needed, ", "));
  for (const std::string& warning : converted.warnings) output.Warn("warning: " + warning);
  if (arguments.out.empty()) return output.Write(converted.toml);
  output.Warn(arguments.out + ": written; run the import commands, then `hps serve --config`");
  for (const std::string& import : converted.imports) output.Line(import);
}

}  // namespace

absl::Status RunCommand(const ConvertConfigArguments& arguments, Output& output) {
  HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(arguments.file, kHugeCtrConfigBytesMax));
  const absl::StatusOr<ConvertedConfig> converted = ConvertHugeCtrConfig(text, arguments.out);
  if (!converted.ok()) {
    return absl::Status(converted.status().code(),
                        absl::StrCat(arguments.file, ": ", converted.status().message()));
  }
  if (!arguments.out.empty()) {
    if (absl::Status written = WriteResultFile(arguments.out, converted->toml); !written.ok())
      return written;
  }
  Print(arguments, *converted, output);
  return absl::OkStatus();
}

}  // namespace hps::cli
