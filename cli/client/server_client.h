// The client of the commands that change a server: address and token, POST requests that are
// repeated while the server is busy, and the server's errors as statuses.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/client/http_client.h"

namespace hps::cli {

struct ServerArguments {
  std::string url;  // as ParseServerUrl takes it
  std::string token_file;
  TlsFiles tls{.prefix = "--tls-"};
};

class ServerClient {
 public:
  // Reads the token: the first line of the file or, without a file, HPS_TOKEN of the environment.
  // Errors: INVALID_ARGUMENT (address or token), those of CheckSecretFile and of ReadFile.
  static absl::StatusOr<ServerClient> Open(const ServerArguments& arguments);

  const HttpServerAddress& address() const { return address_; }
  // Of one request; token and TLS are those of the arguments.
  const HttpOptions& options() const { return options_; }

  struct Post {
    std::string path;
    std::string fields{};  // as HttpRequest::fields
    std::string_view body{};
  };
  // The body of the answer 200. Repeats the request until `timeout` has passed, while the server
  // answers 429 or 503.
  // Errors: those of HttpSend; else that of the server, with its sentence: INVALID_ARGUMENT (400,
  // 413), UNAUTHENTICATED (401), PERMISSION_DENIED (403), NOT_FOUND (404), FAILED_PRECONDITION
  // (409), RESOURCE_EXHAUSTED (429, 507), UNIMPLEMENTED (501), UNAVAILABLE (503), DEADLINE_EXCEEDED
  // (504), INTERNAL (others).
  absl::StatusOr<std::string> Send(const Post& post, std::chrono::nanoseconds timeout) const;

 private:
  HttpServerAddress address_;
  HttpOptions options_;
};

}  // namespace hps::cli
