#include "cli/command_config.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace hps::cli {
namespace {

absl::StatusOr<Config> StoreConfigOf(const StoreArguments& arguments) {
  if (!arguments.config.empty()) return LoadConfig(arguments.config);
  Config config;
  config.store.path = arguments.store;
  config.origin["store.path"] = "--store";
  return config;
}

// Where a setting was turned off, for who has to change it.
std::string OriginOf(const Config& config, const std::string& name) {
  const auto origin = config.origin.find(name);
  return origin == config.origin.end() ? "default" : origin->second;
}

// Metrics alone are no server: nobody could ask for a row.
absl::Status CheckServesSomething(const Config& config) {
  if (!config.server.http.empty() || !config.server.grpc.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("server.http (", OriginOf(config, "server.http"),
                                                 ") and server.grpc (",
                                                 OriginOf(config, "server.grpc"),
                                                 ") are both \"\" (off): there is nothing to "
                                                 "serve"));
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
  if (absl::Status valid = ValidateConfig(*config); !valid.ok()) return valid;
  if (absl::Status served = CheckServesSomething(*config); !served.ok()) return served;
  return config;
}

}  // namespace hps::cli
