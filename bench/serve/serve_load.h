// A closed loop: so many connections, each of which asks again when it has its answer. The open
// one is in serve_open_load.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serve/serve_client.h"
#include "bench/serve/serve_world.h"

namespace hps::bench {

struct LoadTarget {
  const ServeProtocol* protocol = nullptr;
  std::string address;
  std::vector<std::string> requests;         // in rotation
  std::vector<std::vector<std::byte>> rows;  // of each request; checked now and then. Empty: never
};

struct LoadFigures {
  double seconds = 0;
  std::vector<double> latencies_us;  // of the answers with rows, in no order
  uint64_t refused = 0;
  uint64_t late = 0;

  uint64_t answered() const { return latencies_us.size(); }
  double PerSecond() const { return static_cast<double>(answered()) / seconds; }
};

// Ends after `seconds`, or after `requests_max` requests when that comes first (0 = never).
struct ClosedLoad {
  size_t connections = 1;
  double seconds = 1;
  uint64_t requests_max = 0;
};
// Errors: INTERNAL for rows that are not the planted ones; those of the clients.
absl::StatusOr<LoadFigures> RunClosed(const LoadTarget& target, const ClosedLoad& load);

}  // namespace hps::bench
