// The server under loads from a part of its capacity to ten times it.
//
// Where there are two cores, server and generator have a half of them each meanwhile: else the
// generator, which at ten times the capacity has most to do, would take from the server what it is
// to measure. Capacity and loads are measured in the same placing.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "bench/scenario.h"
#include "bench/serve/serve_open_load.h"
#include "bench/serve/serve_world.h"

namespace hps::bench {

struct OverloadSizes {
  double seconds = 0;  // of each load
  size_t in_flight_max = 0;
  std::chrono::microseconds timeout{0};  // that the requests of the target ask for
};

// Of one protocol, whose name is `target`'s; `open` makes clients for it.
struct OverloadTarget {
  const ChildProcess* server = nullptr;
  const LoadTarget* target = nullptr;
  absl::StatusOr<std::unique_ptr<OpenClient>> (*open)(const LoadTarget& target,
                                                      size_t in_flight_max) = nullptr;
};

// Appends "capacity", one "open_loop" for each load, and what is promised of ten times the
// capacity, "overload_goodput" against the capacity, both measured in turns.
// Errors: those of the clients.
absl::Status MeasureOverload(const OverloadTarget& target, const OverloadSizes& sizes,
                             std::vector<Result>& results);

}  // namespace hps::bench
