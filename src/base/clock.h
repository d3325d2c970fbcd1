// An injectable clock, so that tests and simulations can control time.
#pragma once

#include <chrono>

namespace hps {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

// A deadline is a point in time; TimePoint::max() = none.
using Deadline = TimePoint;
inline constexpr Deadline kNoDeadline = Deadline::max();

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The machine's monotonic clock; valid until the process ends.
const Clock& RealClock();

// now + timeout without overflow: a very long timeout gives kNoDeadline.
Deadline DeadlineAfter(const Clock& clock, Duration timeout);

}  // namespace hps
