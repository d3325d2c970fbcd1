#include "cli/server_options.h"

#include <chrono>
#include <string>

#include "base/macros.h"
#include "cli/client/http_client.h"
#include "cli/option_helpers.h"
#include "types/units.h"

namespace hps::cli {
namespace {

// A server and what it takes to talk to it.
CLI::Option* AddServer(CLI::App& app, ServerArguments& arguments) {
  const auto check = [](const std::string& text) { return ParseServerUrl(text).status(); };
  CLI::Option* const server =
      AddText(app, "--server URL", check, arguments.url, "The server's HTTP address");
  AddPath(app, "--token-file FILE", arguments.token_file,
          "First line: the bearer token (or HPS_TOKEN in the environment)");
  AddPath(app, "--tls-ca FILE", arguments.tls.ca,
          "Authority that signed an https server's certificate (those that the system trusts)");
  CLI::Option* const certificate =
      AddPath(app, "--tls-certificate FILE", arguments.tls.certificate,
              "Certificate of this client, for a server that asks for one");
  CLI::Option* const key = AddPath(app, "--tls-key FILE", arguments.tls.key, "Its key");
  certificate->needs(key);
  key->needs(certificate);
  return server;
}

template <typename Timeout>
void AddTimeout(CLI::App& app, Timeout& timeout, const std::string& help) {
  const auto parse = [](const std::string& text) -> absl::StatusOr<Timeout> {
    HPS_ASSIGN_OR_RETURN(const std::chrono::nanoseconds exact, ParseDuration(text));
    return std::chrono::ceil<Timeout>(exact);
  };
  AddParsed(app, "--timeout TIME", parse, timeout, help);
}

// The files that changed rows come from; `Request` is an ImportRequest or the like.
template <typename Request>
void AddRowFiles(CLI::App& app, Request& request) {
  AddPath(app, "--from PATH", request.from, "Files of the table; with --delete, also keys.npy")
      ->required();
  AddChoice(app, "--format", kImportFormats, request.format, "Format of the files (auto)");
  AddCount(app, "--dim", {1, kDimMax}, request.dim,
           "Elements of a row, where the files don't tell");
  AddChoice(app, "--dtype", kDtypes, request.dtype,
            "Element type of the table (that of the files)");
  AddTensor(app, request.tensor);
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
  AddTimeout(*command, request.timeout,
             "The longest that the brokers may take for an answer (30s)");
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
  AddText(*command, "--model MODEL", NotEmpty{"a name"}, arguments.model, "The model")->required();
  AddTimeout(*command, arguments.timeout, "The longest that it may take (10min)");
  command->footer("Example:\n  hps refresh --server http://127.0.0.1:8000 --model dlrm");
  return command;
}

CLI::App* AddSnapshot(CLI::App& app, SnapshotArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "snapshot", "Make a consistent copy of a server's store in STORE/snapshots/NAME");
  AddServer(*command, arguments.server)->required();
  AddText(*command, "--name NAME", NotEmpty{"a name"}, arguments.name, "Name of the copy")
      ->required();
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
  AddParsed(*command, "--interval DURATION", ParseInterval, arguments.interval,
            "Time between two readings (2s)");
  AddCount(*command, "--count", {1}, arguments.count,
           "Readings to show (until ctrl-c; with --json 1)");
  command->footer(
      "Example:\n  hps top --server http://127.0.0.1:8000\n"
      "  hps top --server http://127.0.0.1:8000 --count 1 --json\n"
      "  hps top --server https://hps.example:8000 --tls-ca ca.pem --token-file token");
  return command;
}

}  // namespace hps::cli
