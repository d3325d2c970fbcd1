#include "server/listen_policy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/host.h"

namespace hps::server {
namespace {

// Where a setting was turned off, for who has to change it.
std::string OriginOf(const Config& config, const std::string& name) {
  const auto origin = config.origin.find(name);
  return origin == config.origin.end() ? "set in code" : origin->second;
}

}  // namespace

std::vector<std::string> ListenWarnings(const ServerConfig& config, bool has_token) {
  std::vector<std::string> warnings;
  const bool has_tls = !config.tls_certificate.empty();
  const std::pair<const char*, const std::string&> listeners[] = {
      {"HTTP", config.http}, {"gRPC", config.grpc}, {"metrics", config.metrics}};
  for (const auto& [name, address] : listeners) {
    if (address.empty() || IsLoopback(address)) continue;
    if (!has_tls || !has_token) {
      warnings.push_back(absl::StrCat(name, " on ", address, " can be reached by other machines ",
                                      !has_tls && !has_token ? "without TLS and without a token"
                                      : has_tls              ? "without a token"
                                                             : "without TLS",
                                      " (server.security)"));
    }
  }
  return warnings;
}

absl::Status CheckControl(const ServerConfig& config, bool has_token) {
  if (has_token || (!config.repository_control && !config.updates)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "server.security.", config.repository_control ? "repository_control" : "updates",
      " needs a token: server.security.token_file or admin_token_file, or HPS_TOKEN in "
      "the environment"));
}

absl::Status CheckAddresses(const Config& config) {
  if (!config.server.http.empty() || !config.server.grpc.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "server.http (", OriginOf(config, "server.http"), ") and server.grpc (",
      OriginOf(config, "server.grpc"), ") are both \"\" (off): there is nothing to serve"));
}

}  // namespace hps::server
