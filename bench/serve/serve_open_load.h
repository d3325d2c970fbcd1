// An open loop: requests arrive when a Poisson process says so, whatever the server does, and a
// latency counts from the intended arrival, not from when the client came round to sending. A
// server that stalls is seen in the latencies of all that arrived meanwhile.
//
// An arrival that can't be sent within five milliseconds is not sent, and counted: either as many
// requests were in flight as may be, or the generator itself was too slow. Nothing that was
// offered is left out of the counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "bench/latency_histogram.h"
#include "bench/serve/serve_open_client.h"

namespace hps::bench {

struct OpenLoad {
  double seconds = 1;
  double arrivals_per_second = 1;
  std::chrono::microseconds timeout{50'000};  // an answer with rows after that is too late
  uint64_t seed = 11;
};

// What was offered is what was sent, no_connection and generator_late; what was sent is in_time,
// past_deadline, refused, late, failed and unanswered.
struct OpenFigures {
  double seconds = 0;
  uint64_t offered = 0;
  uint64_t sent = 0;
  uint64_t in_time = 0;         // rows within `timeout` of the arrival
  uint64_t past_deadline = 0;   // rows later than that
  uint64_t refused = 0;         // over capacity
  uint64_t late = 0;            // the server said: past the deadline
  uint64_t failed = 0;          // other codes, broken connections
  uint64_t unanswered = 0;      // nothing came until long after the deadline
  uint64_t no_connection = 0;   // not sent: as many in flight as may be
  uint64_t generator_late = 0;  // not sent: the generator was busy
  uint64_t connections = 0;
  std::map<int, uint64_t> codes;  // of all answers without rows; 0 = a connection broke
  LatencyHistogram latencies;     // of all answers with rows

  double Goodput() const { return static_cast<double>(in_time) / seconds; }
  void Add(const OpenFigures& other);
};

// Errors: those of the client.
absl::StatusOr<OpenFigures> RunOpen(OpenClient& client, const OpenLoad& load);

// On `threads` threads with a client each, which share the arrivals.
using MakeOpenClient = std::function<absl::StatusOr<std::unique_ptr<OpenClient>>()>;
absl::StatusOr<OpenFigures> RunOpenOnThreads(const MakeOpenClient& make, size_t threads,
                                             const OpenLoad& load);

// Keeps so many requests in flight on each client for `seconds`: the answers with rows per second.
struct CapacityLoad {
  size_t in_flight = 16;
  double seconds = 1;
};
absl::StatusOr<double> RunCapacity(OpenClient& client, const CapacityLoad& load);
absl::StatusOr<double> RunCapacityOnThreads(const MakeOpenClient& make, size_t threads,
                                            const CapacityLoad& load);

}  // namespace hps::bench
