#include "server/http/head_check.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "server/http/api.h"

namespace hps::server {
namespace {

HttpError Refusal(int code, std::string message, BadRequestReason reason) {
  return {.code = code, .message = std::move(message), .reason = reason, .allow = {}};
}

// 401 and 403 are counted by themselves.
HttpError LacksToken(const HttpServer& server, int code, std::string message) {
  server.parts().counters->CountAuthFailure();
  return {.code = code, .message = std::move(message), .reason = {}, .allow = {}};
}

// Of a method that no page takes: GET says by itself that a page is unknown.
bool IsUnknownPage(const HttpServer& server, const Route& route) {
  return route.kind == RouteKind::kPage &&
         absl::IsNotFound(AnswerApi(server.parts(), route, {}, {}).status());
}

// Of the path and the method alone.
std::optional<HttpError> CheckRoute(const HttpServer& server, Method method, const Route& route) {
  if (route.kind == RouteKind::kUnknown || (!Allows(route, method) && IsUnknownPage(server, route)))
    return Refusal(404, "there is no such path", BadRequestReason::kUnknown);
  if (method == Method::kUnknown)
    return Refusal(501, "HTTP has no such method", BadRequestReason::kUnknown);
  if (Allows(route, method)) return std::nullopt;
  HttpError error = Refusal(405, "this path does not take the method", BadRequestReason::kUnknown);
  error.allow = AllowedMethods(route);
  return error;
}

std::optional<HttpError> CheckRights(const HttpServer& server, std::string_view authorization,
                                     const Route& route) {
  const ServerConfig& config = *server.parts().config;
  if (!route.controls_models() && !route.changes_rows()) return std::nullopt;
  const bool is_on = route.changes_rows() ? config.updates : config.repository_control;
  if (is_on && server.AdmitsControl(authorization)) return std::nullopt;
  if (route.changes_rows()) {
    return LacksToken(
        server, 403,
        is_on ? "changing rows needs the administrator's token"
              : "changing rows by request is off ([server.security] updates, with a token)");
  }
  return LacksToken(
      server, 403,
      is_on ? "loading, unloading, refreshing and snapshots need the administrator's token"
            : "loading, unloading and snapshots by request are off ([server.security] "
              "repository_control, with a token)");
}

}  // namespace

std::optional<HttpError> CheckHead(const HttpServer& server, const RequestHead& head,
                                   const Route& route) {
  if (!server.AnswersTo(head.host)) {
    return Refusal(
        421,
        absl::StrCat("'", PrintableText(head.host),
                     "' is not a name of this server: add it to [server.security] hosts, "
                     "or use localhost, 127.0.0.0/8 or [::1]"),
        BadRequestReason::kUnknown);
  }
  if (!route.needs_no_token() && !server.Admits(head.authorization))
    return LacksToken(server, 401, "a bearer token is needed");
  if (auto error = CheckRoute(server, head.method, route)) return error;
  if (auto error = CheckRights(server, head.authorization, route)) return error;
  if (head.expectation == Expectation::kUnknown) {
    return Refusal(417, "the only expectation that the server knows is 100-continue",
                   BadRequestReason::kProtocol);
  }
  if (head.content_coding == Coding::kUnknown) {
    return Refusal(415, "the server knows the content codings gzip and deflate",
                   BadRequestReason::kContent);
  }
  return std::nullopt;
}

}  // namespace hps::server
