#include "cli/client/server_client.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/secret_file.h"
#include "cli/read_file.h"

namespace hps::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTokenFileBytesMax = size_t{1} << 20;
// Between two tries at a server that is busy.
constexpr auto kRetryMin = std::chrono::milliseconds(50);
constexpr auto kRetryMax = std::chrono::milliseconds(1000);

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  const char* const variable = std::getenv("HPS_TOKEN");
  std::string token = variable == nullptr ? "" : variable;
  if (!file.empty()) {
    HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kTokenFileBytesMax));
    token = text.substr(0, text.find('\n'));
    if (token.ends_with('\r')) token.pop_back();
  } else if (token.empty()) {
    return token;
  }
  HPS_RETURN_IF_ERROR(CheckToken(token, file.empty() ? "HPS_TOKEN" : absl::StrCat("'", file, "'")));
  return token;
}

absl::StatusCode CodeOf(int http_code) {
  switch (http_code) {
    case 400:
    case 413:
    case 414:
    case 421:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return absl::StatusCode::kFailedPrecondition;
    case 429:
    case 507:
      return absl::StatusCode::kResourceExhausted;
    case 501:
      return absl::StatusCode::kUnimplemented;
    case 503:
      return absl::StatusCode::kUnavailable;
    case 504:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrorOf(const HttpServerAddress& server, const HttpAnswer& answer) {
  const nlohmann::json body = nlohmann::json::parse(answer.body, nullptr, false);
  std::string message;
  if (body.is_object() && body.contains("error") && body["error"].is_string()) {
    message = body["error"].get<std::string>();
    std::replace(message.begin(), message.end(), '\n', ' ');
  }
  return absl::Status(CodeOf(answer.code), absl::StrCat(server.text(), " answered ", answer.code,
                                                        message.empty() ? "" : ": ", message));
}

}  // namespace

absl::StatusOr<ServerClient> ServerClient::Open(const ServerArguments& arguments) {
  ServerClient client;
  HPS_ASSIGN_OR_RETURN(client.address_, ParseServerUrl(arguments.url));
  absl::Status secrets = CheckSecretFile("--token-file", arguments.token_file);
  secrets.Update(CheckSecretFile("--tls-key", arguments.tls.key));
  if (!secrets.ok()) return secrets;
  HPS_ASSIGN_OR_RETURN(client.options_.token, ReadToken(arguments.token_file));
  client.options_.tls = arguments.tls;
  return client;
}

absl::StatusOr<std::string> ServerClient::Send(const Post& post,
                                               std::chrono::nanoseconds timeout) const {
  const Clock::time_point now = Clock::now();
  const Clock::time_point deadline =
      now + std::min<Clock::duration>(timeout, Clock::time_point::max() - now);
  auto pause = kRetryMin;
  while (true) {
    HttpOptions options = options_;
    options.timeout = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    HPS_ASSIGN_OR_RETURN(
        HttpAnswer answer,
        HttpSend(address_,
                 {.method = "POST", .path = post.path, .fields = post.fields, .body = post.body},
                 options));
    if (answer.code == 200) return std::move(answer.body);
    const bool is_busy = answer.code == 429 || answer.code == 503;
    if (!is_busy || Clock::now() + pause >= deadline) return ErrorOf(address_, answer);
    poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(2 * pause, kRetryMax);
  }
}

}  // namespace hps::cli
