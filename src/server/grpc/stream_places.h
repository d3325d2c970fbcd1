// How many streams of a kind each connection, and all together, may hold open.
//
// A stream holds its call while its client sends nothing, so without a bound a few connections with
// idle streams would take every call that the server has.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>

#include "absl/status/status.h"

namespace hps::server {

class StreamPlaces {
 public:
  struct Limits {
    size_t places_max = 0;
    size_t connection_places_max = 0;
    const char* name = "streams";
    const char* connection_limit = "[server] connection_streams_max lets it have";
  };

  explicit StreamPlaces(const Limits& limits) : limits_(limits) {}

  // A place for a stream of a connection that has `connection_places` so far, which become one
  // more. Errors: RESOURCE_EXHAUSTED.
  absl::Status Take(size_t* connection_places);
  // REQUIRES: taken.
  void Return(size_t* connection_places);

  size_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const Limits limits_;
  std::atomic<size_t> taken_ = 0;
};

}  // namespace hps::server
