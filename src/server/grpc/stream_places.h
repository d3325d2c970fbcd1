// Limits the open streams of one kind, for each connection and for the server.
//
// An open stream holds its call even if its client sends nothing. Without a limit, a few
// connections with idle streams would take all calls of the server.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>

#include "absl/status/status.h"

namespace hps::server {

class StreamLimiter {
 public:
  struct Limits {
    size_t places_max = 0;
    size_t connection_places_max = 0;
    const char* name = "streams";
    const char* connection_limit = "[server] connection_streams_max lets it have";
  };

  explicit StreamLimiter(const Limits& limits) : limits_(limits) {}

  // Counts one more stream of the connection, which has `*connection_places` open streams.
  // Errors: RESOURCE_EXHAUSTED.
  absl::Status Take(size_t* connection_places);
  // REQUIRES: taken.
  void Return(size_t* connection_places);

  size_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const Limits limits_;
  std::atomic<size_t> taken_ = 0;
};

}  // namespace hps::server
