// How long a server waits for a client that is slow to take a response.
//
// A client that takes nothing, or little, has `write_timeout` from the moment when it first let the
// server wait. A client that takes at least kSteadyBytes in each kSteadyPeriod is slow but alive:
// it has kSteadyTimeouts times as long.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace hps::server {

inline constexpr Duration kSteadyPeriod = std::chrono::seconds(5);
inline constexpr uint64_t kSteadyBytes = 16 << 10;
inline constexpr int kSteadyTimeouts = 10;

class SendPatience {
 public:
  // The client lets the server wait from now on. `taken_bytes`: what it has taken so far. Returns
  // when to call Extend.
  TimePoint Begin(TimePoint now, Duration write_timeout, uint64_t taken_bytes) {
    since_ = now;
    write_timeout_ = write_timeout;
    return NextCheck(now, taken_bytes, now + write_timeout);
  }

  // At the returned time or later: the next one, or nullopt if the client is to be cut off.
  std::optional<TimePoint> Extend(TimePoint now, uint64_t taken_bytes) {
    // The last period before an end may be shorter; it needs its share of the bytes.
    const Duration period = std::min(now - checked_at_, kSteadyPeriod);
    const bool is_steady = (taken_bytes - taken_bytes_) * kSteadyPeriod >= kSteadyBytes * period &&
                           taken_bytes > taken_bytes_;
    const TimePoint end = since_ + (is_steady ? kSteadyTimeouts * write_timeout_ : write_timeout_);
    if (now >= end) return std::nullopt;
    return NextCheck(now, taken_bytes, end);
  }

 private:
  TimePoint NextCheck(TimePoint now, uint64_t taken_bytes, TimePoint end) {
    checked_at_ = now;
    taken_bytes_ = taken_bytes;
    return std::min(now + kSteadyPeriod, end);
  }

  TimePoint since_{};
  Duration write_timeout_{};
  TimePoint checked_at_{};    // the last check,
  uint64_t taken_bytes_ = 0;  // and what the client had taken then
};

}  // namespace hps::server
