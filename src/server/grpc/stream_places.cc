#include "server/grpc/stream_places.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::server {

absl::Status StreamPlaces::Take(std::string_view peer) {
  MutexLock lock(mutex_);
  if (taken_ >= limits_.places_max) {
    return absl::ResourceExhaustedError("the server is at its capacity (streams); try again later");
  }
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) found = by_peer_.emplace(peer, 0).first;
  if (found->second >= limits_.connection_places_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the connection has ", found->second,
        " streams open, which is all that [server] connection_streams_max lets it have"));
  }
  ++found->second;
  ++taken_;
  return absl::OkStatus();
}

void StreamPlaces::Return(std::string_view peer) {
  MutexLock lock(mutex_);
  const auto found = by_peer_.find(peer);
  HPS_CHECK(found != by_peer_.end());
  --taken_;
  if (--found->second == 0) by_peer_.erase(found);
}

size_t StreamPlaces::taken() const {
  MutexLock lock(mutex_);
  return taken_;
}

}  // namespace hps::server
