// An answer other than success: the status code of HTTP, the text for the client, and what it is
// counted as. One place maps absl's codes to HTTP's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/core/server_counters.h"

namespace hps::server {

struct HttpError {
  int code = 500;
  std::string message;
  std::optional<BadRequestReason> reason;  // counted as, unless other code has counted it
  std::string_view allow;                  // with 405: the methods that there are
};

// 400 for INVALID_ARGUMENT, 429 for RESOURCE_EXHAUSTED, 507 if that is the disk, ...
int HttpCodeOf(const absl::Status& status);

// "Not Found"; "<unknown-status>" for a code that Boost.Beast does not know.
std::string_view ReasonPhrase(int code);

inline HttpError ErrorOf(const absl::Status& status) {
  return {.code = HttpCodeOf(status),
          .message = std::string(status.message().data(), status.message().size()),
          .reason = {},
          .allow = {}};
}

}  // namespace hps::server
