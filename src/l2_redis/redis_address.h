// Where a Redis server listens: "host:port", "[IPv6]:port" or "unix:/path".
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace hps {

struct RedisAddress {
  std::string host;       // a name or a number; empty with a unix socket
  uint16_t port = 0;      // 0 with a unix socket
  std::string unix_path;  // empty with TCP

  // The form that ParseRedisAddress reads.
  std::string Text() const;
  bool operator==(const RedisAddress&) const = default;
};

// Errors: INVALID_ARGUMENT.
absl::StatusOr<RedisAddress> ParseRedisAddress(const std::string& text);

struct RedisUrl {
  RedisAddress address;
  bool tls = false;
};

// "redis://host:port", or "rediss://host:port" for TLS; without a port 6379. Errors:
// INVALID_ARGUMENT, also where the URL has a user, a password or parameters, which the message does
// not repeat.
absl::StatusOr<RedisUrl> ParseRedisUrl(const std::string& text);

}  // namespace hps
