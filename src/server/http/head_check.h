// Whether a request is answered, as far as its head shows: by its host, token, path, method, rights
// and codings. The body of one that is refused need not be read.
//
// Thread-safe: no state.
#pragma once

#include <optional>

#include "server/http/http_error.h"
#include "server/http/http_server.h"
#include "server/http/request_head.h"
#include "server/http/route.h"

namespace hps::server {

// Why it is refused; nullopt: it is not. Counts what lacks a token.
std::optional<HttpError> CheckHead(const HttpServer& server, const RequestHead& head,
                                   const Route& route);

}  // namespace hps::server
