// What the server shows to people and to monitoring: the dashboard at "/", its data, and the
// metrics. HTTP asks it for every GET outside /v2; it knows no HTTP.
//
// Thread-safe. Reads statistics only; nothing here is on a request's path.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hps::server {

struct Page {
  std::string_view content_type;
  // One of the two: bytes that live as long as the process (assets), or this page's own.
  std::string_view fixed;
  std::string made;

  std::string_view body() const { return fixed.empty() ? std::string_view(made) : fixed; }
};

class PageSource {
 public:
  virtual ~PageSource() = default;

  // `path` begins with "/"; `query` is what follows "?" (not decoded), at most 8 KiB.
  //   /              the dashboard (and its assets below /assets/)
  //   /metrics       Prometheus text format 0.0.4
  //   /api/overview, /api/history   JSON: what the dashboard and `hps top` show, now and before
  //   /api/lookup?table=MODEL/TABLE&key=N   JSON: one row with its status
  // Errors: NOT_FOUND, INVALID_ARGUMENT, and those of a lookup.
  virtual absl::StatusOr<Page> Get(std::string_view path, std::string_view query) = 0;
};

}  // namespace hps::server
