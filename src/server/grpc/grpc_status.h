// gRPC's words in HTTP/2 fields: how a call ended, and until when it may take.
//
// Thread-safe: no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"

namespace hps::server {

// The value of grpc-status. Lives forever.
std::string_view StatusCodeText(absl::StatusCode code);

// The value of grpc-message: percent-encoded, and cut where it is longer than trailers should be.
std::string StatusMessageText(std::string_view message);

// The value of grpc-timeout, "100m". Nullopt: it is none.
std::optional<Duration> ParseTimeout(std::string_view text);

}  // namespace hps::server
