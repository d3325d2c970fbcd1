// hps refresh, snapshot: what a server is asked to do with what it serves.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "cli/client/server_client.h"
#include "cli/commands.h"

namespace hps::cli {

absl::Status RunCommand(const RefreshArguments& arguments, Output& output) {
  const auto start = std::chrono::steady_clock::now();
  HPS_ASSIGN_OR_RETURN(const ServerClient client, ServerClient::Open(arguments.server));
  HPS_ASSIGN_OR_RETURN(
      const std::string done,
      client.Send({.path = absl::StrCat("/v2/repository/models/", arguments.model, "/refresh")},
                  arguments.timeout));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (output.is_json()) {
    output.json().Member("model", std::string_view(arguments.model)).Member("seconds", seconds);
  } else {
    output.Line(absl::StrCat(arguments.model, ": level 1 refreshed in ", Fixed(seconds, 2), " s"));
  }
  return absl::OkStatus();
}

absl::Status RunCommand(const SnapshotArguments& arguments, Output& output) {
  HPS_ASSIGN_OR_RETURN(const ServerClient client, ServerClient::Open(arguments.server));
  std::string body;
  JsonWriter json(&body);
  json.BeginObject();
  json.Member("name", std::string_view(arguments.name));
  json.EndObject();
  HPS_ASSIGN_OR_RETURN(const std::string done,
                       client.Send({.path = "/v2/hps/snapshot", .body = body}, arguments.timeout));
  const nlohmann::json answer = nlohmann::json::parse(done, nullptr, false);
  if (!answer.is_object())
    return absl::InvalidArgumentError("the answer of the server is no JSON object");
  const uint64_t bytes = answer.value("bytes", uint64_t{0});
  const double seconds = answer.value("seconds", 0.0);
  if (output.is_json()) {
    output.json().Member("name", std::string_view(arguments.name)).Member("bytes", bytes);
    output.json().Member("seconds", seconds);
  } else {
    output.Line(absl::StrCat("snapshots/", arguments.name, ": ",
                             ReadableBytes(static_cast<double>(bytes)), " in ", Fixed(seconds, 2),
                             " s"));
  }
  return absl::OkStatus();
}

}  // namespace hps::cli
