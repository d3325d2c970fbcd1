#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "hps/units.h"
#include "model/config_values.h"
#include "model/setting_list.h"

namespace hps {
namespace {

constexpr uint64_t kCountMax = uint64_t{1} << 40;
constexpr uint64_t kBytesInFlightMin = uint64_t{4} << 20;
// The largest body is held as it came, as it is unpacked (the last part of that twice, while its
// memory grows) or as its tensors, in memory that is up to a quarter larger; and then its answer.
constexpr uint64_t kBodyPart = 4;

std::vector<Setting<Config>> AddressSettings() {
  const EnumCodec<LateAnswers> late{
      {{LateAnswers::kDegraded, "degraded"}, {LateAnswers::kError, "error"}}};
  return {
      MakeSetting<Config>(
          {"server", "http", "Where HTTP is served; empty = off."}, ListenCodec{},
          [](auto& c) -> auto& { return c.server.http; }),
      MakeSetting<Config>(
          {"server", "grpc", "Where gRPC is served; empty = off."}, ListenCodec{},
          [](auto& c) -> auto& { return c.server.grpc; }),
      MakeSetting<Config>(
          {"server", "metrics", "Where metrics are served alone, besides HTTP; empty = off."},
          ListenCodec{}, [](auto& c) -> auto& { return c.server.metrics; }),
      MakeSetting<Config>(
          {"server", "threads", "Threads of each protocol, at least 2; 0 = two for each core."},
          IntegerCodec{0, 1024}, [](auto& c) -> auto& { return c.server.threads; }),
      MakeSetting<Config>(
          {"server", "lookups", "Look-ups at a time, fewer than `threads`; 0 = one for each core."},
          IntegerCodec{0, 1023}, [](auto& c) -> auto& { return c.server.lookups; }),
      MakeSetting<Config>(
          {"server", "late_answers",
           "What a request gets whose rows have not all come by its deadline: default rows that "
           "are marked, or DEADLINE_EXCEEDED."},
          late, [](auto& c) -> auto& { return c.server.late_answers; }),
      MakeSetting<Config>(
          {"server", "drain_timeout", "How long requests may go on after SIGTERM."},
          DurationCodec{Duration(0), kHour},
          [](auto& c) -> auto& { return c.server.drain_timeout; }),
  };
}

std::vector<Setting<Config>> LimitSettings() {
  const DurationCodec timeout{std::chrono::milliseconds(1), 24 * kHour};
  return {
      MakeSetting<Config>(
          {"server", "keys_in_flight_max",
           "Keys of all requests that are being answered; beyond it requests are refused at once."},
          CountCodec{1, kCountMax}, [](auto& c) -> auto& { return c.server.keys_in_flight_max; }),
      MakeSetting<Config>(
          {"server", "bytes_in_flight_max",
           "Bytes of requests and answers that are held; beyond it requests are refused at once."},
          SizeCodec{kBytesInFlightMin, kSizeMax},
          [](auto& c) -> auto& { return c.server.bytes_in_flight_max; }),
      MakeSetting<Config>(
          {"server", "connections_max", "Connections that are open, of HTTP and of gRPC each."},
          IntegerCodec{1, 1'000'000}, [](auto& c) -> auto& { return c.server.connections_max; }),
      MakeSetting<Config>(
          {"server", "body_bytes_max",
           "Body of a request, unpacked, and its tensors; at most a quarter of "
           "`bytes_in_flight_max`, and that by default where it is less than 64MiB."},
          SizeCodec{1024, uint64_t{1} << 31},
          [](auto& c) -> auto& { return c.server.body_bytes_max; }),
      MakeSetting<Config>(
          {"server", "response_bytes_max", "Tensors of an answer."},
          SizeCodec{1024, uint64_t{1} << 31},
          [](auto& c) -> auto& { return c.server.response_bytes_max; }),
      MakeSetting<Config>(
          {"server", "header_timeout",
           "From the first byte of a request to the last of its header."},
          timeout, [](auto& c) -> auto& { return c.server.header_timeout; }),
      MakeSetting<Config>(
          {"server", "body_timeout", "For the body of a request."}, timeout,
          [](auto& c) -> auto& { return c.server.body_timeout; }),
      MakeSetting<Config>(
          {"server", "write_timeout", "For an answer that the client does not take."}, timeout,
          [](auto& c) -> auto& { return c.server.write_timeout; }),
      MakeSetting<Config>(
          {"server", "idle_timeout", "Between two requests of a connection."}, timeout,
          [](auto& c) -> auto& { return c.server.idle_timeout; }),
      MakeSetting<Config>(
          {"server", "stream_idle_timeout", "Between two requests of a gRPC stream."}, timeout,
          [](auto& c) -> auto& { return c.server.stream_idle_timeout; }),
      MakeSetting<Config>(
          {"server", "connection_streams_max",
           "gRPC streams of one connection that are open; those of all connections are at most "
           "4,096."},
          IntegerCodec{1, 1024}, [](auto& c) -> auto& { return c.server.connection_streams_max; }),
      MakeSetting<Config>(
          {"server.batching", "keys_max",
           "Keys of one look-up, over all requests that it answers; a larger request goes alone, "
           "in pieces."},
          CountCodec{1, kKeysPerCallMax}, [](auto& c) -> auto& { return c.server.batch_keys_max; }),
      MakeSetting<Config>(
          {"server.batching", "wait",
           "How long a request may wait for others while look-ups run; nothing waits when none "
           "runs."},
          DurationCodec{Duration(0), std::chrono::seconds(1)},
          [](auto& c) -> auto& { return c.server.batch_wait; }),
  };
}

std::vector<Setting<Config>> SecuritySettings() {
  const EnumCodec<LogLevel> level{{{LogLevel::kDebug, "debug"},
                                   {LogLevel::kInfo, "info"},
                                   {LogLevel::kWarning, "warning"},
                                   {LogLevel::kError, "error"},
                                   {LogLevel::kOff, "off"}}};
  const EnumCodec<LogFormat> format{{{LogFormat::kText, "text"}, {LogFormat::kJson, "json"}}};
  return {
      MakeSetting<Config>(
          {"server.security", "tls_certificate",
           "PEM file with the server's certificate chain; not set = no TLS."},
          PathCodec{}, [](auto& c) -> auto& { return c.server.tls_certificate; }),
      MakeSetting<Config>(
          {"server.security", "tls_key", "PEM file with its key."}, PathCodec{},
          [](auto& c) -> auto& { return c.server.tls_key; }),
      MakeSetting<Config>(
          {"server.security", "tls_client_ca",
           "PEM file; clients must then show a certificate that it signed."},
          PathCodec{}, [](auto& c) -> auto& { return c.server.tls_client_ca; }),
      MakeSetting<Config>(
          {"server.security", "token_file",
           "File with the bearer token, one line; not set = HPS_TOKEN of the environment, if any."},
          PathCodec{}, [](auto& c) -> auto& { return c.server.token_file; }),
      MakeSetting<Config>(
          {"server.security", "repository_control",
           "Loading and unloading models by API; needs a token."},
          BooleanCodec{}, [](auto& c) -> auto& { return c.server.repository_control; }),
      MakeSetting<Config>(
          {"log", "level", "Lines below it are left out."}, level,
          [](auto& c) -> auto& { return c.log.level; }),
      MakeSetting<Config>(
          {"log", "format", "How a line is written."}, format,
          [](auto& c) -> auto& { return c.log.format; }),
      MakeSetting<Config>(
          {"log", "file", "A regular file, appended to, opened anew by SIGHUP; not set = stderr."},
          PathCodec{}, [](auto& c) -> auto& { return c.log.file; }),
  };
}

}  // namespace

std::vector<Setting<Config>> ServerSettings() {
  std::vector<Setting<Config>> all = AddressSettings();
  for (std::vector<Setting<Config>> part : {LimitSettings(), SecuritySettings()})
    std::move(part.begin(), part.end(), std::back_inserter(all));
  return all;
}

uint64_t DefaultBodyBytesMax(const ServerConfig& config) {
  return std::min(ServerConfig().body_bytes_max, config.bytes_in_flight_max / kBodyPart);
}

absl::Status CheckServer(const ServerConfig& config) {
  if (config.threads == 1) {
    return absl::InvalidArgumentError(
        "server.threads = 1: at least 2, of which one is always free to refuse");
  }
  if (config.threads != 0 && config.lookups >= config.threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("server.lookups = ", config.lookups,
                     ": expected fewer than server.threads, which is ", config.threads));
  }
  if (config.body_bytes_max > config.bytes_in_flight_max / kBodyPart) {
    return absl::InvalidArgumentError(
        absl::StrCat("server.body_bytes_max = ", FormatByteSize(config.body_bytes_max),
                     ": at most a quarter of server.bytes_in_flight_max, which is ",
                     FormatByteSize(config.bytes_in_flight_max),
                     ": a larger body could be refused also where there is no other"));
  }
  if (config.tls_certificate.empty() != config.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "server.security.tls_certificate and tls_key are given together or not at all");
  }
  if (!config.tls_client_ca.empty() && config.tls_certificate.empty()) {
    return absl::InvalidArgumentError(
        "server.security.tls_client_ca needs server.security.tls_certificate");
  }
  return absl::OkStatus();
}

}  // namespace hps
