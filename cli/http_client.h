// Asks a server for one page over HTTP, within a deadline and a size: what `hps top` needs, no
// more.
//
// HTTP/1.1, also over TLS; one connection for each request. For one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/tls_client.h"

namespace hps::cli {

struct HttpServerAddress {
  std::string host;
  std::string port;
  bool has_tls = false;

  std::string text() const { return host + ":" + port; }
};

// "http://HOST[:PORT]", "https://HOST[:PORT]" or "HOST:PORT", with "[::1]" for addresses of version
// 6; a path is refused but "/". Errors: INVALID_ARGUMENT.
absl::StatusOr<HttpServerAddress> ParseServerUrl(const std::string& url);

struct HttpGetOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(5);  // of the whole exchange
  uint64_t body_bytes_max = uint64_t{64} << 20;
  std::string token;  // sent as a bearer token, unless empty
  TlsTrust trust;     // for servers with TLS
};

// The body of an answer with status 200.
// Errors: UNAVAILABLE (no such host, refused, cut off), DEADLINE_EXCEEDED, INVALID_ARGUMENT (the
// answer is not HTTP), RESOURCE_EXHAUSTED (too large), those of TlsClient; of another status
// UNAUTHENTICATED (401),
// NOT_FOUND (404) or UNAVAILABLE, with the number. CANCELLED when a signal came.
absl::StatusOr<std::string> HttpGet(const HttpServerAddress& server, const std::string& path,
                                    const HttpGetOptions& options);

}  // namespace hps::cli
