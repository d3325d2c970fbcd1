// A Redis server of one's own that holds the rows of the scenario "serve".
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "bench/serve/serve_load.h"
#include "bench/serve/serve_world.h"

namespace hps::bench {

class RedisPeer {
 public:
  // Errors: NOT_FOUND where no redis-server is installed; UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<RedisPeer>> Start(const ServeWorld& world);

  // MGET of the keys of each request; all have as many keys. REQUIRES: called once.
  const LoadTarget& Target(std::span<const ServeRequest> requests);

 private:
  RedisPeer() = default;

  std::unique_ptr<ChildProcess> process_;
  ServeProtocol protocol_;
  LoadTarget target_;
};

}  // namespace hps::bench
