#include "server/listen_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/macros.h"
#include "base/secret_file.h"
#include "server/http/host.h"

namespace hps::server {
namespace {

constexpr int64_t kCertificateSeconds = int64_t{30} * 24 * 60 * 60;

// Of a server: its listener and its event loop.
constexpr uint64_t kListenerFiles = 6;
// Of the metrics port, and whatever is opened later: the queues of lookups that read page files (64
// at most), files of changes, certificates, /proc.
constexpr uint64_t kMetricsConnectionsMax = 32;
constexpr uint64_t kSpareFiles = 128;
// One for a client and one for a probe.
constexpr uint64_t kConnectionsMin = 2;

// Where a setting was turned off, for the administrator who has to change it.
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

absl::Status CheckSecrets(const ServerConfig& config) {
  const bool allowed = config.secrets_readable_by_all;
  HPS_RETURN_IF_ERROR(CheckSecretFile("[server.security] token_file", config.token_file, allowed));
  HPS_RETURN_IF_ERROR(
      CheckSecretFile("[server.security] admin_token_file", config.admin_token_file, allowed));
  return CheckSecretFile("[server.security] tls_key", config.tls_key, allowed);
}

std::string CertificateWarning(const ServerStatistics& statistics, int64_t now_seconds) {
  const int64_t end = statistics.certificate_not_after;
  const bool has_begun = statistics.certificate_not_before <= now_seconds;
  if (has_begun && end - now_seconds >= kCertificateSeconds) return "";
  const char* const state = !has_begun           ? "is not valid before"
                            : end <= now_seconds ? "expired at"
                                                 : "expires in less than 30 days, at";
  return absl::StrCat(
      "the certificate of [server.security] tls_certificate ", state, " ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC",
                       absl::FromUnixSeconds(has_begun ? end : statistics.certificate_not_before),
                       absl::UTCTimeZone()),
      has_begun ? "; renew it and send SIGHUP" : "; check it and the clock of this machine");
}

absl::StatusOr<ConnectionShares> ShareFiles(const ServerConfig& config, uint64_t files_open,
                                            uint64_t files_max) {
  const uint64_t protocols = uint64_t{!config.http.empty()} + uint64_t{!config.grpc.empty()};
  const uint64_t listeners = kListenerFiles * (protocols + uint64_t{!config.metrics.empty()});
  // A switch to a new import opens its files beside the old ones.
  const uint64_t reserve = std::min(files_max / 4, kSpareFiles + files_open);
  const uint64_t used = files_open + listeners + reserve;
  const uint64_t each = files_max < used ? 0 : (files_max - used) / protocols;
  if (each < std::min<uint64_t>(kConnectionsMin, config.connections_max)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "server: this process may open ", files_max, " files and has ", files_open,
        " open: too few are left for connections; raise the limit (LimitNOFILE, ulimit -n)"));
  }
  const uint64_t most = config.connections_max;
  return ConnectionShares{
      .each_max = static_cast<uint32_t>(std::min(most, each)),
      .metrics_max = static_cast<uint32_t>(std::min({most, reserve / 2, kMetricsConnectionsMax}))};
}

}  // namespace hps::server
