// A client that sends without waiting for answers, as an open loop needs: many requests in flight,
// one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/serve/serve_load.h"

namespace hps::bench {

struct OpenAnswer {
  enum class Kind {
    kRows,
    kRefused,  // over capacity
    kLate,     // past its deadline, as the server says
    kFailed,   // anything else, also a connection that broke
  };
  Kind kind = Kind::kFailed;
  int code = 0;  // HTTP's or gRPC's; 0 where a connection broke
  std::chrono::steady_clock::time_point arrival;
  std::chrono::steady_clock::time_point end;
};

// For one thread.
class OpenClient {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~OpenClient() = default;
  // The clock of all times here.
  virtual TimePoint Now() = 0;
  // Sends request `number` of the target (modulo their count), on a connection that is free or on
  // a new one. False, with nothing sent, when as many are in flight as may be.
  virtual bool Send(uint64_t number, TimePoint arrival) = 0;
  // Reads what has come, waiting until `until` for the first answer, and hands on each.
  // Errors: INTERNAL for rows that are not the planted ones, or bytes that are no answer.
  virtual absl::Status Poll(TimePoint until,
                            const std::function<void(const OpenAnswer&)>& on_answer) = 0;
  virtual size_t in_flight() const = 0;
  // The most connections that were open at a time.
  virtual size_t connections() const = 0;
};

// One connection for each request in flight. `target` must outlive the client.
// Errors: UNAVAILABLE, INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<OpenClient>> OpenHttpClient(const LoadTarget& target,
                                                           size_t in_flight_max);
// All requests over a few connections, as gRPC does. Errors: UNAVAILABLE; UNIMPLEMENTED in a build
// without gRPC.
absl::StatusOr<std::unique_ptr<OpenClient>> OpenGrpcClient(const LoadTarget& target,
                                                           size_t in_flight_max);

}  // namespace hps::bench
