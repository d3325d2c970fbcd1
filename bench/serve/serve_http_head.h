// The head of an HTTP answer, as far as a load generator needs it.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"

namespace hps::bench {

struct HttpAnswerHead {
  int code = 0;
  size_t body_bytes = 0;
  bool closes = false;  // the server closes the connection after it
};

// `head` ends with its blank line.
// Errors: INTERNAL without a status line, or a length of at most 4 MiB.
absl::StatusOr<HttpAnswerHead> ParseHttpAnswerHead(std::string_view head);

}  // namespace hps::bench
