#include "server/http/route.h"

#include <algorithm>
#include <utility>

namespace hps::server {
namespace {

constexpr std::pair<std::string_view, RouteKind> kOfServer[] = {
    {"", RouteKind::kServerMetadata},        {"health/live", RouteKind::kLive},
    {"health/ready", RouteKind::kReady},     {"models/stats", RouteKind::kServerStatistics},
    {"repository/index", RouteKind::kIndex}, {"trace/setting", RouteKind::kTrace},
    {"logging", RouteKind::kLogging},        {"hps/snapshot", RouteKind::kSnapshot},
};
constexpr std::pair<std::string_view, RouteKind> kOfModel[] = {
    {"", RouteKind::kModelMetadata},     {"ready", RouteKind::kModelReady},
    {"config", RouteKind::kModelConfig}, {"stats", RouteKind::kModelStatistics},
    {"infer", RouteKind::kInfer},        {"trace/setting", RouteKind::kTrace},
};

template <size_t n>
RouteKind Find(const std::pair<std::string_view, RouteKind> (&table)[n], std::string_view name) {
  for (const auto& [text, kind] : table) {
    if (text == name) return kind;
  }
  return RouteKind::kUnknown;
}

bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// What stands before the next "/", which is taken off as well.
std::string_view TakePart(std::string_view* text) {
  const size_t end = std::min(text->find('/'), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

Route ModelRoute(std::string_view rest) {
  Route route;
  route.model = TakePart(&rest);
  if (route.model.empty()) return route;
  if (TakePrefix("versions/", &rest)) {
    route.version = TakePart(&rest);
    if (route.version.empty()) return route;
  }
  route.kind = Find(kOfModel, rest);
  return route;
}

Route RepositoryRoute(std::string_view rest) {
  Route route;
  route.model = TakePart(&rest);
  if (route.model.empty()) return route;
  route.kind = rest == "load"      ? RouteKind::kLoad
               : rest == "unload"  ? RouteKind::kUnload
               : rest == "refresh" ? RouteKind::kRefresh
                                   : RouteKind::kUnknown;
  return route;
}

// MODEL/TABLE/rows
Route TableRoute(std::string_view rest) {
  Route route;
  route.model = TakePart(&rest);
  route.table = TakePart(&rest);
  if (!route.model.empty() && !route.table.empty() && rest == "rows")
    route.kind = RouteKind::kUpdateRows;
  return route;
}

}  // namespace

Route FindRoute(std::string_view path) {
  if (path != "/v2" && !path.starts_with("/v2/")) {
    Route page;
    page.kind = path.starts_with("/") ? RouteKind::kPage : RouteKind::kUnknown;
    page.path = path;
    return page;
  }
  path.remove_prefix(3);
  if (path.starts_with("/")) path.remove_prefix(1);
  if (path.size() > 1 && path.ends_with("/")) path.remove_suffix(1);
  if (const RouteKind kind = Find(kOfServer, path); kind != RouteKind::kUnknown) {
    return {.kind = kind};
  }
  if (TakePrefix("models/", &path)) return ModelRoute(path);
  if (TakePrefix("hps/tables/", &path)) return TableRoute(path);
  if (TakePrefix("repository/models/", &path)) return RepositoryRoute(path);
  if (path.starts_with("systemsharedmemory/") || path.starts_with("cudasharedmemory/")) {
    return {.kind = RouteKind::kSharedMemory};
  }
  return {};
}

std::string_view AllowedMethods(const Route& route) {
  return route.takes_post() ? "POST" : "GET, HEAD";
}

bool Allows(const Route& route, Method method) {
  if (route.takes_any()) return true;
  if (route.takes_post()) return method == Method::kPost;
  return method == Method::kGet || method == Method::kHead;
}

}  // namespace hps::server
