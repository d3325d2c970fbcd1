#include "cli/server_options.h"

#include <chrono>
#include <string>

#include "cli/client/http_client.h"
#include "cli/option_helpers.h"
#include "types/units.h"

namespace hps::cli {
namespace {

// A server and what it takes to talk to it.
CLI::Option* AddServer(CLI::App& app, ServerArguments& arguments) {
  CLI::Option* const server = AddChecked(
                                  app, "--server",
                                  [](const std::string& text) {
                                    return std::string(ParseServerUrl(text).status().message());
                                  },
                                  [&arguments](const std::string& url) { arguments.url = url; },
                                  "The server's HTTP address")
                                  ->type_name("URL");
  AddPath(app, "--token-file", arguments.token_file,
          "First line: the bearer token (or HPS_TOKEN in the environment)")
      ->type_name("FILE");
  AddPath(app, "--tls-ca", arguments.tls_ca,
          "Authority that signed an https server's certificate (those that the system trusts)")
      ->type_name("FILE");
  CLI::Option* const certificate =
      AddPath(app, "--tls-certificate", arguments.tls_certificate,
              "Certificate of this client, for a server that asks for one")
          ->type_name("FILE");
  CLI::Option* const key = AddPath(app, "--tls-key", arguments.tls_key, "Its key");
  certificate->needs(key->type_name("FILE"));
  key->needs(certificate);
  return server;
}

void AddTimeout(CLI::App& app, std::chrono::nanoseconds& timeout, const std::string& help) {
  AddParsed(
      app, "--timeout", ParseDuration,
      [&timeout](std::chrono::nanoseconds parsed) { timeout = parsed; }, help)
      ->type_name("TIME");
}

// The files that changed rows come from; `Request` is an ImportRequest or the like.
template <typename Request>
void AddRowFiles(CLI::App& app, Request& request) {
  AddPath(app, "--from", request.from, "Files of the table; with --delete, also keys.npy")
      ->required()
      ->type_name("PATH");
  AddChoice<TableFormat>(
      app, "--format", kImportFormats, [&request](TableFormat format) { request.format = format; },
      "Format of the files (auto)");
  AddCount(app, "--dim", {1, kDimMax}, request.dim,
           "Elements of a row, where the files don't tell");
  AddChoice<Dtype>(
      app, "--dtype", kDtypes, [&request](Dtype dtype) { request.dtype = dtype; },
      "Element type of the table (that of the files)");
  AddText(app, "--tensor", "a name", request.tensor,
          "safetensors: the [n, dim] tensor whose row numbers are the keys")
      ->type_name("NAME");
}

// Long enough for a server to answer in between, short enough for poll()'s milliseconds.
absl::StatusOr<std::chrono::nanoseconds> ParseInterval(const std::string& text) {
  absl::StatusOr<std::chrono::nanoseconds> interval = ParseDuration(text);
  if (interval.ok() &&
      (*interval < std::chrono::milliseconds(100) || *interval > std::chrono::hours(1)))
    return absl::InvalidArgumentError("'" + text + "' is not from 100ms to 1h");
  return interval;
}

}  // namespace

CLI::App* AddPublish(CLI::App& app, PublishArguments& arguments) {
  CLI::App* command = app.add_subcommand("publish", "Publish rows of a table to its update stream");
  PublishRequest& request = arguments.request;
  command->add_option("--brokers", request.brokers, "Kafka brokers")
      ->required()
      ->type_name("HOST:PORT,...");
  AddTable(*command, request.table)->required();
  AddRowFiles(*command, request);
  command->add_flag("--delete", request.is_delete, "Delete the keys instead");
  AddCount(*command, "--rate", {1}, request.rows_per_second_max, "Rows per second (no limit)");
  AddParsed(
      *command, "--timeout", ParseDuration,
      [&request](std::chrono::nanoseconds timeout) {
        request.timeout = std::chrono::ceil<std::chrono::milliseconds>(timeout);
      },
      "The longest that the brokers may take for an answer (30s)")
      ->type_name("TIME");
  command->footer(
      "Example:\n  hps publish --brokers localhost:9092 --table dlrm/user --from changed_rows\n"
      "  hps publish --brokers localhost:9092 --table dlrm/user --from gone.npy --delete");
  return command;
}

CLI::App* AddApply(CLI::App& app, ApplyArguments& arguments) {
  CLI::App* command =
      app.add_subcommand("apply", "Change rows of a table now, in a store or over a server");
  AddStore(*command, arguments.store);
  AddServer(*command, arguments.server)
      ->excludes(command->get_option("--store"))
      ->excludes(command->get_option("--config"));
  AddTable(*command, arguments.request.name)->required();
  AddRowFiles(*command, arguments.request);
  command->add_flag("--delete", arguments.is_delete, "Delete the keys instead");
  AddTimeout(*command, arguments.timeout, "The longest that one change may take (30s)");
  command->footer(
      "Example:\n  hps apply --store store --table dlrm/user --from changed_rows\n"
      "  hps apply --server http://127.0.0.1:8000 --table dlrm/user --from gone.npy --delete");
  return command;
}

CLI::App* AddRefresh(CLI::App& app, RefreshArguments& arguments) {
  CLI::App* command =
      app.add_subcommand("refresh", "Read every row in level 1 of a server's model again");
  AddServer(*command, arguments.server)->required();
  AddText(*command, "--model", "a name", arguments.model, "The model")
      ->required()
      ->type_name("MODEL");
  AddTimeout(*command, arguments.timeout, "The longest that it may take (10min)");
  command->footer("Example:\n  hps refresh --server http://127.0.0.1:8000 --model dlrm");
  return command;
}

CLI::App* AddSnapshot(CLI::App& app, SnapshotArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "snapshot", "Make a consistent copy of a server's store in STORE/snapshots/NAME");
  AddServer(*command, arguments.server)->required();
  AddText(*command, "--name", "a name", arguments.name, "Name of the copy")
      ->required()
      ->type_name("NAME");
  AddTimeout(*command, arguments.timeout, "The longest that it may take (10min)");
  command->footer("Example:\n  hps snapshot --server http://127.0.0.1:8000 --name monday");
  return command;
}

CLI::App* AddParked(CLI::App& app, ParkedArguments& arguments) {
  CLI::App* command =
      app.add_subcommand("parked", "List the messages of the update stream that were set aside");
  AddStore(*command, arguments.store);
  CLI::Option* replay = command->add_flag("--replay", arguments.replay,
                                          "Decode them again and apply each at its own position");
  command
      ->add_flag("--undecided", arguments.undecided,
                 "Also apply keys that may have been deleted after the message")
      ->needs(replay);
  command->footer("Example:\n  hps parked --store store\n  hps parked --store store --replay");
  return command;
}

CLI::App* AddTop(CLI::App& app, TopArguments& arguments) {
  CLI::App* command = app.add_subcommand("top", "Watch a server in the terminal");
  AddServer(*command, arguments.server)->required();
  AddParsed(
      *command, "--interval", ParseInterval,
      [&arguments](std::chrono::nanoseconds interval) { arguments.interval = interval; },
      "Time between two readings (2s)")
      ->type_name("DURATION");
  AddCount(*command, "--count", {1}, arguments.count,
           "Readings to show (until ctrl-c; with --json 1)");
  command->footer(
      "Example:\n  hps top --server http://127.0.0.1:8000\n"
      "  hps top --server http://127.0.0.1:8000 --count 1 --json\n"
      "  hps top --server https://hps.example:8000 --tls-ca ca.pem --token-file token");
  return command;
}

}  // namespace hps::cli
