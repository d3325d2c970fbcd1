// Which of the server's functions a path names.
//
// Thread-safe: no state.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/http/request_head.h"

namespace hps::server {

enum class RouteKind : uint8_t {
  kUnknown,
  kLive,
  kReady,
  kServerMetadata,
  kServerStatistics,
  kModelReady,
  kModelMetadata,
  kModelConfig,
  kModelStatistics,
  kInfer,
  kIndex,
  kLoad,
  kUnload,
  kRefresh,     // of level 1
  kSnapshot,    // of the store
  kUpdateRows,  // of one table
  kSharedMemory,
  kTrace,
  kLogging,
  kPage,  // everything outside /v2
};

// Views point into the path.
struct Route {
  RouteKind kind = RouteKind::kUnknown;
  std::string_view model;
  std::string_view version;  // empty = the newest
  std::string_view table;    // of kUpdateRows
  std::string_view path;     // of a page

  bool takes_post() const {
    return kind == RouteKind::kInfer || kind == RouteKind::kIndex || kind == RouteKind::kLoad ||
           kind == RouteKind::kUnload || changes_rows() || kind == RouteKind::kRefresh ||
           kind == RouteKind::kSnapshot;
  }
  // Loads, unloads, refreshes and snapshots.
  bool controls_models() const {
    return kind == RouteKind::kLoad || kind == RouteKind::kUnload || kind == RouteKind::kRefresh ||
           kind == RouteKind::kSnapshot;
  }
  bool changes_rows() const { return kind == RouteKind::kUpdateRows; }
  // Those whose only answer is that the server has no such thing.
  bool takes_any() const {
    return kind == RouteKind::kSharedMemory || kind == RouteKind::kTrace ||
           kind == RouteKind::kLogging;
  }
  bool is_probe() const { return kind == RouteKind::kLive || kind == RouteKind::kReady; }
  // The files of the dashboard, which hold nothing of the server: a browser can't send a token with
  // the first request, so the page itself asks for it and sends it with /api.
  bool is_dashboard_file() const {
    return kind == RouteKind::kPage && (path == "/" || path.starts_with("/assets/"));
  }
  bool needs_no_token() const {
    return is_probe() || kind == RouteKind::kModelReady || is_dashboard_file();
  }
};

Route FindRoute(std::string_view path);

// "GET, HEAD" or "POST".
std::string_view AllowedMethods(const Route& route);

bool Allows(const Route& route, Method method);

}  // namespace hps::server
