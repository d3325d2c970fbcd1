// Everything but infer: metadata, configuration, statistics, the repository, pages. The JSON has
// the shapes that Triton's clients expect.
//
// Thread-safe: no state.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/page_source.h"
#include "server/core/protocol_server.h"
#include "server/http/request_head.h"
#include "server/http/route.h"

namespace hps::server {

inline Page JsonPage(std::string text) {
  return {.content_type = "application/json", .fixed = {}, .made = std::move(text)};
}

// The body of a load: empty, or an object without parameters.
// Errors: INVALID_ARGUMENT (no JSON), UNIMPLEMENTED (parameters).
absl::Status CheckLoad(std::span<char> body);

// REQUIRES: a route other than infer, load and unload, with a method that it allows. `body` may be
// changed. Errors: NOT_FOUND, UNAVAILABLE, INVALID_ARGUMENT, UNIMPLEMENTED, and those of pages.
absl::StatusOr<Page> AnswerApi(const ProtocolParts& parts, const Route& route,
                               std::string_view query, std::span<char> body);

}  // namespace hps::server
