#include "server/grpc/stream_places.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::server {

absl::Status StreamLimiter::Take(size_t* connection_places) {
  if (*connection_places >= limits_.connection_places_max) {
    return absl::ResourceExhaustedError(absl::StrCat("the connection has ", *connection_places, " ",
                                                     limits_.name, " open, which is all that ",
                                                     limits_.connection_limit));
  }
  if (taken_.fetch_add(1, std::memory_order_relaxed) >= limits_.places_max) {
    taken_.fetch_sub(1, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(
        absl::StrCat("the server is at its capacity (", limits_.name, "); try again later"));
  }
  ++*connection_places;
  return absl::OkStatus();
}

void StreamLimiter::Return(size_t* connection_places) {
  HPS_CHECK(*connection_places > 0);
  --*connection_places;
  taken_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace hps::server
