#include "cli/command_config.h"

#include <optional>
#include <string>

#include "hps/server.h"

namespace hps::cli {
namespace {

absl::StatusOr<Config> StoreConfigOf(const StoreArguments& arguments) {
  if (!arguments.config.empty()) return LoadConfig(arguments.config);
  Config config;
  config.store.path = arguments.store;
  config.origin["store.path"] = "--store";
  return config;
}

}  // namespace

absl::StatusOr<Config> ConfigOfCommand(const StoreArguments& arguments) {
  absl::StatusOr<Config> config = StoreConfigOf(arguments);
  if (!config.ok()) return config;
  config->l2.kind = L2Kind::kNone;
  config->l1.devices_auto = false;
  config->l1.devices.clear();
  return config;
}

absl::StatusOr<Config> ConfigOfServer(const ServeArguments& arguments) {
  absl::StatusOr<Config> config = StoreConfigOf(arguments.store);
  if (!config.ok()) return config;
  const auto replace = [&](const std::optional<std::string>& given, const std::string& name,
                           std::string& setting) {
    if (!given.has_value()) return;
    setting = *given;
    config->origin["server." + name] = "--" + name;
  };
  replace(arguments.http, "http", config->server.http);
  replace(arguments.grpc, "grpc", config->server.grpc);
  replace(arguments.metrics, "metrics", config->server.metrics);
  // What is only printed need not be complete: the token may be in another process' environment.
  absl::Status valid = arguments.print_config ? ValidateConfig(*config) : Server::Check(*config);
  if (!valid.ok()) return valid;
  return config;
}

}  // namespace hps::cli
