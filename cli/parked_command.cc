// hps parked: messages of the update stream that were set aside.
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "hps/parked.h"

namespace hps::cli {
namespace {

// "2026-11-24T18:00:00Z"
std::string TimeText(int64_t time_ms) {
  if (time_ms == 0) return "unknown time";
  const auto seconds = static_cast<std::time_t>(time_ms / 1000);
  std::tm parts{};
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return absl::StrCat(time_ms, " ms");
  }
  return text;
}

void Print(const std::vector<ParkedMessageInfo>& messages, Output& output) {
  if (output.is_json()) {
    JsonWriter& json = output.json();
    json.Name("messages").BeginArray();
    for (const ParkedMessageInfo& message : messages) {
      json.BeginObject();
      json.Member("table", std::string_view(message.table));
      json.Member("topic", std::string_view(message.topic));
      json.Member("partition", message.position.partition);
      json.Member("generation", uint32_t{message.position.generation});
      json.Member("offset", message.position.offset);
      json.Member("reason", std::string_view(message.reason));
      json.Member("detail", std::string_view(message.detail));
      json.Member("time_ms", message.time_ms).Member("bytes", message.payload_bytes);
      json.EndObject();
    }
    json.EndArray();
    return;
  }
  for (const ParkedMessageInfo& message : messages) {
    output.Line(absl::StrCat(message.topic, " partition ", message.position.partition, " offset ",
                             message.position.offset, " ", TimeText(message.time_ms), " ",
                             message.reason, ": ", message.detail));
  }
}

}  // namespace

absl::Status RunCommand(const ParkedArguments& arguments, const Config& config, Output& output) {
  if (!arguments.replay) {
    HPS_ASSIGN_OR_RETURN(const auto messages, ListParkedMessages(config));
    Print(messages, output);
    if (!output.is_json()) output.Line(absl::StrCat(messages.size(), " messages are parked"));
    return absl::OkStatus();
  }
  HPS_ASSIGN_OR_RETURN(const ReplayReport report,
                       ReplayParkedMessages(config, {.apply_undecided = arguments.undecided}));
  Print(report.parked, output);
  if (output.is_json()) {
    output.json().Member("replayed", report.messages).Member("rows", report.rows);
    output.json().Member("superseded", report.superseded);
    output.json().Member("undecided", report.undecided);
    return absl::OkStatus();
  }
  output.Line(absl::StrCat(report.messages, " messages replayed, ", report.rows, " rows changed; ",
                           report.parked.size(), " messages stay parked"));
  if (report.superseded > 0) {
    output.Line(absl::StrCat(report.superseded,
                             " keys were left out: their row or their deletion is newer"));
  }
  if (report.undecided > 0) {
    output.Line(absl::StrCat(report.undecided, " keys were left out: they have no row, and may ",
                             "have been deleted after the message; --undecided applies them"));
  }
  return absl::OkStatus();
}

}  // namespace hps::cli
