#include "l2_redis/redis_address.h"

#include <sys/un.h>

#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "tier/foreign_store.h"

namespace hps {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kScheme = "redis://";
constexpr std::string_view kTlsScheme = "rediss://";
constexpr std::string_view kDefaultPort = ":6379";

}  // namespace

std::string RedisAddress::Text() const {
  if (!unix_path.empty()) return absl::StrCat(std::string(kUnix), unix_path);
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<RedisAddress> ParseRedisAddress(const std::string& text) {
  const auto invalid = [&text] {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is not the address of a Redis server: expected host:port, [IPv6]:port or "
                     "unix:/path"));
  };
  RedisAddress address;
  if (text.starts_with(kUnix)) {
    address.unix_path = text.substr(kUnix.size());
    const bool fits = address.unix_path.size() < sizeof(sockaddr_un::sun_path);
    if (address.unix_path.empty() || !fits) return invalid();
    return address;
  }
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 ||
      port > UINT16_MAX) {
    return invalid();
  }
  address.port = static_cast<uint16_t>(port);
  address.host = text.substr(0, colon);
  if (address.host.starts_with('[') && address.host.ends_with(']')) {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return invalid();
  }
  if (address.host.empty()) return invalid();
  return address;
}

absl::StatusOr<RedisUrl> ParseRedisUrl(const std::string& text) {
  HPS_RETURN_IF_ERROR(CheckRedisUrlHasNoPassword(text));
  RedisUrl url;
  url.tls = text.starts_with(kTlsScheme);
  std::string address;
  if (url.tls || text.starts_with(kScheme))
    address = text.substr(url.tls ? kTlsScheme.size() : kScheme.size());
  if (address.ends_with('/')) address.pop_back();
  const bool has_port = address.rfind(':') != std::string::npos && !address.ends_with(']');
  if (!address.empty() && !has_port) address += kDefaultPort;
  const auto parsed = ParseRedisAddress(address);
  if (!parsed.ok() || !parsed->unix_path.empty() || address.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is no URL of Redis: expected redis://HOST:PORT or rediss://HOST:PORT"));
  }
  url.address = *parsed;
  return url;
}

}  // namespace hps
