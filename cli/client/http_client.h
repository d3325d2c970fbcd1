// Sends one HTTP request to a server and receives the answer, within a deadline and a limit of
// bytes. For the commands that talk to a server.
//
// HTTP/1.1, also over TLS; one connection for each request. For one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/tls.h"

namespace hps::cli {

struct HttpServerAddress {
  std::string host;
  std::string port;
  bool has_tls = false;

  std::string text() const { return host + ":" + port; }
};

// "http://HOST[:PORT]", "https://HOST[:PORT]" or "HOST:PORT", an IPv6 address in brackets: "[::1]".
// A path other than "/" is refused. Errors: INVALID_ARGUMENT.
absl::StatusOr<HttpServerAddress> ParseServerUrl(const std::string& url);

struct HttpOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(5);  // of the whole exchange
  uint64_t body_bytes_max = uint64_t{64} << 20;                 // of the answer
  std::string token{};  // sent as a bearer token, unless empty
  TlsFiles tls{};       // for servers with TLS
};

struct HttpRequest {
  std::string_view method = "GET";
  std::string path;
  std::string fields{};     // more lines of the head, each with its line end
  std::string_view body{};  // sent with its length, unless the method is GET
};

struct HttpAnswer {
  int code = 0;
  std::string body;
};

// The answer of any status code. The server may answer before it has read the whole body.
// Errors: UNAVAILABLE (no such host, refused, no answer before the connection's end),
// DEADLINE_EXCEEDED, INVALID_ARGUMENT (the answer is not HTTP or was cut off, a file of `tls`),
// RESOURCE_EXHAUSTED (too large), those of TlsClientError. CANCELLED when a signal came.
absl::StatusOr<HttpAnswer> HttpSend(const HttpServerAddress& server, const HttpRequest& request,
                                    const HttpOptions& options);

// The body of an answer with status 200.
// Errors: those of HttpSend; of another status UNAUTHENTICATED (401), NOT_FOUND (404) or
// UNAVAILABLE, with the number.
absl::StatusOr<std::string> HttpGet(const HttpServerAddress& server, const std::string& path,
                                    const HttpOptions& options);

}  // namespace hps::cli
