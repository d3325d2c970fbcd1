// Values of gRPC's HTTP/2 header fields: the status of a call and its timeout.
//
// Thread-safe: no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"

namespace hps::server {

// The value of grpc-status; static text.
std::string_view StatusCodeText(absl::StatusCode code);

// The value of grpc-message: percent-encoded, and truncated to what fits into trailers.
std::string StatusMessageText(std::string_view message);

// Parses a value of grpc-timeout, such as "100m". Nullopt: it is invalid.
std::optional<Duration> ParseTimeout(std::string_view text);

}  // namespace hps::server
