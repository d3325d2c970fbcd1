// How many streams each connection, and all together, may hold open.
//
// A stream holds its call while its client sends nothing, so without a bound a few connections with
// idle streams would take every call that the server has.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace hps::server {

class StreamPlaces {
 public:
  struct Limits {
    size_t places_max = 0;
    size_t connection_places_max = 0;
  };

  explicit StreamPlaces(const Limits& limits) : limits_(limits) {}

  // A place for a stream of a connection, which the peer's address and port tell from others.
  // Errors: RESOURCE_EXHAUSTED.
  absl::Status Take(std::string_view peer);
  // REQUIRES: taken.
  void Return(std::string_view peer);

  size_t taken() const;

 private:
  const Limits limits_;
  mutable Mutex mutex_;
  std::map<std::string, size_t, std::less<>> by_peer_ HPS_GUARDED_BY(mutex_);
  size_t taken_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps::server
